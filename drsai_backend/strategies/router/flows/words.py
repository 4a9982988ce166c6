"""What people say to a flow: yes and no, skip, stop and continue, in several languages."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split("|"))


YES: Final = _words(
    "yes|y|yeah|yep|yup|ok|okay|sure|correct|right|confirm|confirmed|true|go ahead|that's right|of course|please do|"
    "ja|jawohl|stimmt|richtig|oui|d'accord|sí|si|claro|vale|sim|da|да|верно|evet|tak|sì|certo|"
    "是|是的|好|好的|对|对的|可以|没错|确认|同意|行|はい|うん|네|예"
)
NO: Final = _words(
    "no|n|nope|nah|wrong|incorrect|not correct|false|nein|falsch|non|não|nao|нет|неверно|nie|"
    "不|不是|否|不对|不行|不可以|不同意|いいえ|아니요|아니"
)
SKIP: Final = _words(
    "skip|none|nothing|-|no preference|überspringen|keine|keines|nichts|passer|aucun|saltar|ninguno|nada|"
    "нет|пропустить|跳过|没有|无|スキップ|건너뛰기"
)
LEAVE: Final = (
    *("cancel", "stop", "quit", "abort", "exit", "never mind", "nevermind", "abbrechen", "stopp", "annuler", "arrête"),
    *("cancelar", "parar", "отмена", "стоп", "取消", "停止", "退出", "算了", "キャンセル", "취소"),
)
RESUME: Final = (
    *("continue", "resume", "go on", "weiter", "fortsetzen", "continuer", "reprendre", "continuar", "продолжить"),
    *("继续", "続ける", "계속"),
)
_PARTS: Final = re.compile("[,.!;\u3001\u3002\uff0c\uff01\uff1b]")
_POLITE: Final = re.compile(
    r"(?:^|(?<=\s))(?:please|thanks|thank you|bitte|danke|merci|s'il vous plaît|por favor|gracias|obrigad[oa]|"
    r"спасибо|пожалуйста)$|(?:谢谢|请|ください)$"
)
_STOPS: Final = " \t\n.!?,;:\u2026\u3002\uff01\uff1f\uff0c\uff1b\uff1a"


def plain(text: str) -> str:
    """A text without the case, and without blanks and stops around it."""
    return " ".join(text.replace("\u2019", "'").casefold().strip(_STOPS).split())


def is_one_of(text: str, words: Collection[str]) -> bool:
    """Whether a text is one of these words, and nothing else."""
    said = plain(text)
    return bool(said) and any(said == plain(word) for word in words)


def truth_of(text: str) -> bool | None:
    """Yes or no, also said politely, or twice: `Yes, please`; None: neither. `Yes, but …` is neither."""
    parts = [_POLITE.sub("", plain(part)).strip() for part in _PARTS.split(plain(text))]
    said = [part for part in parts if part]
    for words, truth in ((YES, True), (NO, False)):
        if said and all(part in words for part in said):
            return truth
    return None


def rest_after(text: str, words: Collection[str]) -> str | None:
    """What a text says after one of these words, with which it begins; None: it begins with none."""
    said = plain(text)
    for word in sorted(map(plain, words), key=len, reverse=True):
        if said == word:
            return ""
        if said.startswith(word) and (not said[len(word)].isalnum() or ord(word[-1]) > 0x2E80):
            return said[len(word) :].strip(_STOPS)
    return None
