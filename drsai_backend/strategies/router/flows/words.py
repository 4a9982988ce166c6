"""Words to a flow are yes and no, skip, stop and continue, in several languages."""

from __future__ import annotations

import re
import unicodedata
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
_FILLERS: Final = _words(
    "i|i'd|i'll|i'm|id|we|we'd|we'll|we're|you|would|will|like|love|want|wish|need|to|the|a|an|is|it|it's|its|"
    "be|that|that's|this|about|roughly|approximately|around|just|please|in|on|at|for|my|our|of|us|make|take|"
    "have|get|let|me|let's|say|think|was|total|exactly|ok|okay|there|are|thanks|thank|come|fine|good|great|then|so|"
    "one|prefer|sit|go|with|well|hmm|um|oh|sure|yes|am|book|set|amount|date|address|am|um|den|der|die|das|"
    "bitte|le|la|el|los|por|favor"
)
"""Words that change nothing of a value beside them."""
_FILLERS_CJK: Final = (
    "我们|我|您|你|想要|想|要|需要|是|请|的|了|吧|呢|啊|呀|哦|嗯|一共|总共|共计|合计|总计|大概|大约|差不多|左右|应该|就|给|来|去|"
    "选择|选项|选|订|定|预订|预定|谢谢|好|报销|金额|日期|时间|为|有|在|于|坐|那|这|钱|整|正|麻烦|帮|可以|行|邮箱|邮件|地址"
)
_TURNS: Final = _words(
    "not|no|nor|or|than|least|most|more|less|fewer|under|over|between|until|till|before|after|except|without|"
    "never|above|below|max|maximum|min|minimum|up|from|within|unless|if|but|excluding|including|per|each|every|"
    "other"
)
"""Words that turn a value into another, or into none, also where the question has them."""
_TURNS_CJK: Final = re.compile("[不没非别无未或除还至最超多少低高前后上下以内外每各到]")
_CJK: Final = "\u3040-\u9fff"
_WORD: Final = re.compile(rf"[{_CJK}]+|(?:(?![{_CJK}])[^\W_])+(?:'[a-z]{{1,3}})?|\S")
_MARKS: Final = frozenset(",.!?:;()[]*`'\"_\u2026\u3001\u3002\u201c\u201d\u2018\u300c\u300d\u3010\u3011")
_PARTS: Final = re.compile("[,.!;\u3001\u3002\uff0c\uff01\uff1b]")
_POLITE: Final = re.compile(
    r"(?:^|(?<=\s))(?:please|thanks|thank you|bitte|danke|merci|s'il vous plaît|por favor|gracias|obrigad[oa]|"
    r"спасибо|пожалуйста)$|(?:谢谢|请|ください)$"
)
_STOPS: Final = " \t\n.!?,;:\u2026\u3002\uff01\uff1f\uff0c\uff1b\uff1a"


def plain(text: str) -> str:
    """A text without the case, and without blanks and stops around it."""
    return " ".join(text.replace("\u2019", "'").casefold().strip(_STOPS).split())


def widened(text: str) -> str:
    """A text in plain letters, digits and blanks: without the case, and without those of another width."""
    return " ".join(unicodedata.normalize("NFKC", text).replace("\u2019", "'").casefold().split())


def says_nothing(rest: str, about: str = "") -> bool:
    """Whether what is left beside a value changes nothing of it: politeness, marks, and words of the question, `about`;
    but no word that turns it, such as `not` and `or`."""
    known = {word for word in _WORD.findall(widened(about)) if word.isalpha() and word not in _TURNS}
    known = {word for word in known if not _TURNS_CJK.search(word)}
    words = _WORD.findall(widened(rest))
    runs = re.compile("|".join([*(re.escape(each) for each in known if each >= "\u3040"), _FILLERS_CJK]))
    return all(
        not runs.sub("", word) if word >= "\u3040" else word in _MARKS or word in _FILLERS or word in known
        for word in words
    )


def without_word(text: str, word: str) -> str:
    """A text without a word, wherever it has it; in languages that are written without blanks, within others too."""
    edges = ("", "") if word[:1] >= "\u3040" else (r"(?<!\w)", r"(?!\w)")
    return re.sub(re.escape(word).join(edges), " ", text) if word else text


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
    """Return what a text says after one of these words, with which it begins; None: it begins with none."""
    said = plain(text)
    for word in sorted(map(plain, words), key=len, reverse=True):
        if said == word:
            return ""
        if said.startswith(word) and (not said[len(word)].isalnum() or ord(word[-1]) > 0x2E80):
            return said[len(word) :].strip(_STOPS)
    return None
