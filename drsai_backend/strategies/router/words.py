"""What people say to a flow: yes and no, skip, stop and continue, in several languages."""

from __future__ import annotations

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
_STOPS: Final = " \t\n.!?,;:\u2026\u3002\uff01\uff1f\uff0c\uff1b\uff1a"


def plain(text: str) -> str:
    """A text without the case, and without blanks and stops around it."""
    return " ".join(text.replace("\u2019", "'").casefold().strip(_STOPS).split())


def is_one_of(text: str, words: Collection[str]) -> bool:
    """Whether a text is one of these words, and nothing else."""
    said = plain(text)
    return bool(said) and any(said == plain(word) for word in words)


def truth_of(text: str) -> bool | None:
    """Yes or no; None: neither. A first word counts where the rest follows a comma: `yes, please`."""
    said = plain(text)
    for words, truth in ((YES, True), (NO, False)):
        if said in words or any(said.startswith((f"{word},", f"{word} please", f"{word} thank")) for word in words):
            return truth
        if any(ord(word[0]) > 0x2E80 and said.startswith((f"{word}\uff0c", f"{word},")) for word in words):
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
