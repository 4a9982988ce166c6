"""Prices say what a model call costs: a dated list that comes along, or the operator's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError

from drsai_backend.errors import ConfigurationError
from drsai_backend.explain import explain
from drsai_backend.models.profiles.load import read_document

DEFAULT: Final = Path(__file__).with_name("prices.yaml")
_PER_TOKEN: Final = 100
"""What 1 per million tokens is for a token, in 0.00000001."""
_MOST_FOUND: Final = 1_000
_Amount = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True, frozen=True)


class Price(_Strict):
    """What tokens of some models cost, each number per million."""

    model: str = Field(min_length=1, description="The name at the endpoint; `*` stands for any characters.")
    profile: str | None = Field(default=None, description="Only for answers of this model profile.")
    since: date | None = Field(default=None, alias="from", description="From this day on, UTC; None: always.")
    prompt: _Amount
    cached: _Amount | None = Field(default=None, description="Of a prompt, what the endpoint had; None: as `prompt`.")
    cache_write: _Amount | None = Field(default=None, description="What it keeps of one; None: as `prompt`.")
    completion: _Amount = 0.0
    cached_apart: bool = Field(default=False, description="The endpoint's count of a prompt is without these two.")

    def cost_of(self, call: Mapping[str, object]) -> int:
        """Return what a call costs, in 0.00000001, by what is known of it (`CallRecord`)."""
        prompt, completion, cached, written = (
            count if isinstance(count := call.get(name), int) else 0
            for name in ("prompt_tokens", "completion_tokens", "cached_tokens", "cache_write_tokens")
        )
        plain = prompt if self.cached_apart else max(prompt - cached - written, 0)
        of_cached, of_written = (self.prompt if each is None else each for each in (self.cached, self.cache_write))
        cost = plain * self.prompt + cached * of_cached + written * of_written + completion * self.completion
        return round(cost * _PER_TOKEN)


class Prices(_Strict):
    """A list of prices. Of those that fit a call, one for its profile wins over one for all, a name over a pattern, the
    longer pattern over the shorter, and of equal ones an override, or else that which began last."""

    currency: str = Field(
        default="USD", pattern=r"^[A-Z]{3}$", description="Of all of them, and of all that is stored."
    )
    prices: list[Price]
    _overrides: int = PrivateAttr(default=0)
    """How many of the first ones are overrides."""
    _found: dict[tuple[str, str, date], Price | None] = PrivateAttr(default_factory=dict)

    def cost_of(self, call: Mapping[str, object], at: datetime) -> int | None:
        """Return what a call cost that was answered then, in 0.00000001; None: no price is known. An answer out of the
        response cache costs nothing."""
        if call.get("cached"):
            return 0
        key = str(call.get("model") or ""), str(call.get("profile") or ""), at.date()
        found = self._found  # Pydantic looks a private attribute up in Python, each time.
        if key not in found:
            if len(found) >= _MOST_FOUND:
                found.clear()
            found[key] = self.price_of(*key)
        price = found[key]
        return None if price is None else price.cost_of(call)

    def price_of(self, model: str, profile: str, day: date) -> Price | None:
        """Return the price of a model on a day; None: none is known."""
        fits = (
            (_rank(each, model, place < self._overrides), each)
            for place, each in enumerate(self.prices)
            if each.profile in (None, profile)
            and (each.since is None or each.since <= day)
            and fnmatchcase(model, each.model)
        )
        best = max(fits, key=lambda each: each[0], default=None)
        return None if best is None else best[1]

    def overridden(self, prices: Sequence[Price]) -> Prices:
        """Return the list with prices before its own, that win over equal ones of it."""
        made = Prices(currency=self.currency, prices=[*prices, *self.prices])
        made._overrides = len(prices)
        return made


def _rank(price: Price, model: str, is_override: bool) -> tuple[bool, bool, int, bool, date]:
    since = price.since or date.min
    return price.profile is not None, price.model == model, len(price.model), is_override, since


def load_prices(path: Path | None, overrides: Sequence[Mapping[str, object]] = ()) -> Prices:
    """Return the prices of a YAML or JSON file; None: those that come along.

    Args:
        overrides: prices in the form of the file, that win over equal ones of it, whenever these began.

    Raises:
        ConfigurationError: it cannot be read, or a field cannot be used; the message names file and field.
    """
    content = read_document(path or DEFAULT, "DRSAI_PRICES")
    try:
        prices = Prices.model_validate(content)
    except ValidationError as error:
        wrong = "; ".join(f"{each.place or 'the file'}: {each.text}" for each in explain(error))
        raise ConfigurationError(f"DRSAI_PRICES: {path}: {wrong}") from None
    if not overrides:
        return prices
    try:
        own = Prices.model_validate({"prices": overrides}).prices
    except ValidationError as error:
        wrong = "; ".join(f"{each.place}: {each.text}" for each in explain(error))
        raise ConfigurationError(f"DRSAI_PRICE_OVERRIDES: {wrong}") from None
    return prices.overridden(own)
