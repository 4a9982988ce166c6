"""What Prometheus reads of an answer, by its own parsers."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families


class Scraped:
    """The samples of an answer."""

    def __init__(self, text: str) -> None:
        read = (
            openmetrics.text_string_to_metric_families if text.endswith("# EOF\n") else text_string_to_metric_families
        )
        self.families = {each.name: each for each in read(text)}
        self._samples = [each for family in self.families.values() for each in family.samples]

    def of(self, name: str, **labels: str) -> float:
        """The sum of all samples of that name that have these labels."""
        return sum(each.value for each in self._samples if each.name == name and labels.items() <= each.labels.items())

    def by(self, name: str, label: str) -> dict[str, float]:
        """The sums of that name by the values of a label."""
        return {value: self.of(name, **{label: value}) for value in {*self._values(name, label)}}

    def counters(self) -> Iterator[tuple[tuple[str, frozenset[tuple[str, str]]], float]]:
        """What must never go back, by name and labels."""
        for family in self.families.values():
            if family.type in ("counter", "histogram"):
                for each in family.samples:
                    yield (each.name, frozenset(each.labels.items())), each.value

    def _values(self, name: str, label: str) -> Iterator[str]:
        return (each.labels[label] for each in self._samples if each.name == name and label in each.labels)
