"""Languages are told by their frequent letters beyond ASCII, and by how these stand in words: so are encodings."""

# ruff: noqa: RUF001 - letters of many languages

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from math import log2
from typing import Final, NamedTuple

_RARE: Final = 14.0
"""Bits of a character that the language has not."""
_BROKEN: Final = 20.0
"""Bits of one that cannot be decoded."""
_SIGN: Final = 7.0
_SIGNS: Final = "’“”‘„–—…«»‹›€£§°·•®™½²№¿¡\xa0"
"""What stands in texts of any language."""
_LETTER: Final = 9.0
_LETTERS: Final = "àáâãäåæçèéêëìíîïðñòóôõöøùúûüýþÿœšž"
"""Letters of western Europe: names and words of one language stand in texts of another."""
_QUOTE: Final = 4.0
_QUOTES: Final = "«»“”’"
"""Bytes that are letters in other encodings."""
_ODD_CASE, _CAPITALS = 8, 1
"""Bits of a word with a capital behind a small letter, and of one of capitals."""
_WORDS: Final = re.compile(r"[^\W\d_]+")
_ASCII: Final = re.compile("[A-Za-z]")


class Language(NamedTuple):
    """A language.

    Attributes:
        bits: of its frequent characters, as small letters.
        among: bits of a word with letters of ASCII beside others.
        alone: bits of each letter of a word without any of ASCII.
        others: bits of the other characters of East Asia.
    """

    bits: dict[str, float]
    among: float
    alone: float
    others: float = _RARE


class Sample:
    """A text of which it is asked what language it is."""

    def __init__(self, text: str) -> None:
        self._seen = Counter(each for each in text.lower() if each > "\x7f")
        self._among = self._alone = self._case = 0
        for word in _WORDS.findall(text):
            if word.isascii():
                continue
            if _ASCII.search(word):
                self._among += 1
            elif len(word) > 1:  # `à` is a word
                self._alone += len(word)
            if word.isupper():
                self._case += _CAPITALS if len(word) > 1 else 0
            elif word[1:].lower() != word[1:]:
                self._case += _ODD_CASE

    def cost(self, language: Language) -> float:
        """Return the bits of what is beyond ASCII in it: the fewer, the more it is of this language."""
        cost = self._case + self._among * language.among + self._alone * language.alone
        for each, count in self._seen.items():
            bits = language.bits.get(each)
            if bits is None:
                wide = "\u3040" <= each <= "\ud7a3"
                bits = _BROKEN if each == "\ufffd" else language.others if wide else _RARE
            cost += count * bits
        return cost


def _zipf(letters: str) -> dict[str, float]:
    """Bits of letters, the most frequent first."""
    whole = sum(1 / (rank + 2) for rank in range(len(letters)))
    bits = {each: log2((rank + 2) * whole) for rank, each in enumerate(letters)}
    return dict.fromkeys(_SIGNS, _SIGN) | bits


def _latin(letters: str) -> Language:
    return Language(_zipf(letters), among=0, alone=4)


def _western(letters: str) -> Language:
    bits = dict.fromkeys(_LETTERS, _LETTER) | _zipf(letters) | dict.fromkeys(_QUOTES, _QUOTE)
    return Language(bits, among=0, alone=4)


def _alphabet(letters: str) -> Language:
    return Language(_zipf(letters), among=7, alone=0)


def _wide(*shares: tuple[float, Iterable[str]], others: float) -> Language:
    """A language of thousands of characters. `shares`: of all characters, that of each group."""
    bits: dict[str, float] = {}
    for share, group in shares:
        chars = [*group]
        bits |= dict.fromkeys(chars, log2(len(chars) / share))
    return Language(bits, among=1, alone=0, others=others)


_HAN: Final = (
    "的一是不了在人有我他这个们中来上大为和国地到以说时要就出会可也你对生能而子那得于着下自之年过发后作里用道行所然家种事"
    "成方多经么去法学如都同现当没动面起看定天分还进好小部其些主样理心她本前开但因只从想实日军者意无力它与长把机十民第公此"
    "已工使情明性知全三又关点正业外将两高间由问很最重并物手应战向头文体政美相见被利什二等产或新己制身果加西斯月话合回特代"
    "内信表化老给世位次度门任常先海通教儿原东声提立及比员解水名真论处走义各入几口认条平系气题活尔更别打女变四神总何电数安"
    "少报才结反受目太量再感建务做接必场件计管期市直德资命山金指克许统区保至队形社便空决治展马科司五基眼书非则听白却界达光"
    "放强即像难且权思王象完设式色路记南品住告类求据程北边死张该交规万取拉格望觉术领共确传师观清今切院让识候带导争运请享批"
    "准周申這個們來為國說時會對於著過發後裡種經麼學現當沒動還進樣開從實軍無與長機關點業將兩間問並應戰頭體見產話內給門東兒"
    "聲員處義認條氣題別變總電數報結務場計資許統區隊決馬書則聽達強難權設類記據邊張該規覺術領確傳師觀識帶導爭運請爾幾論萬週"
)
_HAN_SIGNS: Final = "，。、；：？！（）《》「」『』“”‘’—…·％\u3000"
_KANJI: Final = (
    "日一人年大十二本中長出三時行見月分後前生五間上東四今金九入学高円子外八六下来気小七山話女北午百書先名川千水半男西電校語土"
    "木聞食車何南万毎白天母火右読友左休父雨業者合同社員事用利地方法定成部内場作体理性力度文自明手目動物主世代回開実現最多約全"
    "問題必要信通表記計設申請"
)
_HANGUL: Final = (
    "이다는의을에하고가지한은로기사대시를리도인스일어나자정해서그수아부제라보전들있니과주상요여원게구조만모경비장공동습까국안오무"
    "세명성우신할면용적치유트분거실화합내연생체방당계작음관간급개행위진회미선물건중되문년및않러입출때후발매월직휴삼십"
)
_HIRAGANA: Final = [chr(code) for code in range(0x3041, 0x3094)]
_KATAKANA: Final = [*(chr(code) for code in range(0x30A1, 0x30F7)), "ー"]

_CHINESE: Final = (_wide((0.6, _HAN), (0.12, _HAN_SIGNS), others=15),)
_JAPANESE: Final = (
    _wide((0.5, _HIRAGANA), (0.12, _KATAKANA), (0.15, _KANJI), (0.1, "、。「」・（）…？！　"), others=14.5),
)
_KOREAN: Final = (_wide((0.75, _HANGUL), (0.03, "“”‘’…·「」"), others=11.7),)
_WESTERN: Final = tuple(
    map(
        _western,
        (
            *(
                "éàèêçôîùâûëïœ",
                "äüöß",
                "óíáéñúü¿¡ªº",
                "ãçáéíóêõúâàôºª",
                "èàùòéì",
                "öåäé",
                "øåæé",
                "éëïöè",
                "àéíóèòçúï·",
            ),
            *("íðáþóéæúýö", "äöõü", "é£"),
        ),
    )
)
_CENTRAL: Final = tuple(
    map(_latin, ("łąęóśżćńź", "íáěéřýžčšůúňťďó", "áíčéýžúšľťôäňóď", "éáöóőüíúű", "ăîșțâşţ", "čšžćđ"))
)
_CYRILLIC: Final = tuple(
    map(
        _alphabet,
        ("оеаинтсрвлкмдпуыяьгзбчйхжшюцщэфъё", "оаніирвтескудлмпязьбгчйхцїжюєщшфґ’'", "аиоенрсутквјдмплгзбцшчжхћњљђџф"),
    )
)
ENCODINGS: Final[dict[str, tuple[float, tuple[Language, ...]]]] = {
    "cp1252": (0, _WESTERN),
    "gb18030": (0, _CHINESE),
    "big5hkscs": (0, _CHINESE),
    "cp932": (0, _JAPANESE),
    "euc_jp": (0, _JAPANESE),
    "cp949": (4, _KOREAN),
    "cp1251": (4, _CYRILLIC),
    "koi8_u": (12, _CYRILLIC),
    "cp866": (12, _CYRILLIC),
    "cp1250": (8, _CENTRAL),
    "iso8859_2": (12, _CENTRAL),
    "cp1254": (12, (_latin("ıişğüçöâ"),)),
    "cp1257": (12, tuple(map(_latin, ("ėšųįūžąčę", "āīēšņūļžķģč")))),
    "cp1253": (8, (_alphabet("αοιετσνηυρπκμλςίόωάέήδγχθύφβώξζψ"),)),
    "cp1255": (8, (_alphabet("יוהלארתבמשנעםדקפחגטסכןצזךףץ"),)),
    "cp1256": (
        8,
        (
            _alphabet("اليمنوترهبةعدسفكقحأجشصطخإىذضئزثءظؤغآ،؟ًٌَُِّْ"),
            _alphabet("ايردنهومتبسلکشزفگعخقجآپحطصيچضذ،؟\u200cً"),
        ),
    ),
    "cp874": (8, (_alphabet("านรอกเงม่ยลว้ดทัสติะปีบค์หุแจพชขใูไธภโศซญณถฟผ็ำ"),)),
}
"""Encodings without marks, the bits by which each is less likely than the first, and what is written in it."""
WIDE: Final[dict[str, tuple[float, tuple[Language, ...]]]] = dict.fromkeys(
    ("utf-16-le", "utf-16-be"), (0, tuple(each for _, languages in ENCODINGS.values() for each in languages))
)
"""The same of UTF-16 without a mark."""
