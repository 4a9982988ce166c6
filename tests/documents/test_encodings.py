"""Encodings without a mark are told by the language that comes of them, in short texts and in long ones."""

# ruff: noqa: RUF001 - letters of many languages

from __future__ import annotations

import pytest

from drsai_backend.documents.formats.encodings import decode
from drsai_backend.errors import DocumentUnsupported

TEXTS = {
    "English": "The café’s “résumé” says: 5 £ a day – naïve visitors paid it all the same.",
    "German": "Beschäftigte erhalten jährlich dreißig Tage Urlaub; Anträge müssen früh genügend begründet werden.",
    "French": "Chaque employé a droit à trente jours de congé par année, qu’il doit demander à l’avance.",
    "Spanish": "Los empleados podrán pedir treinta días de vacaciones al año; la petición se enviará con antelación.",
    "Portuguese": "Os funcionários têm direito a trinta dias de férias; a autorização não é necessária no verão.",
    "Italian": "Chi è assunto può chiedere trenta giorni di ferie; l’attività riprenderà più tardi.",
    "Swedish": "Anställda får trettio dagars ledighet per år och måste söka den två veckor före avresan.",
    "Danish": "Medarbejdere får tredive dages ferie om året og skal søge den to uger før afrejsen.",
    "Icelandic": "Starfsmenn eiga rétt á þrjátíu daga fríi á ári og verða að sækja um það með góðum fyrirvara.",
    "Polish": "Każdy pracownik może wziąć trzydzieści dni urlopu; wniosek składa się dwa tygodnie wcześniej.",
    "Czech": "Každý zaměstnanec má třicet dní dovolené; žádost se podává dva týdny předem a schvaluje ji vedoucí.",
    "Hungarian": "Minden dolgozónak évente harminc nap szabadság jár; a kérelmet két héttel előbb kell benyújtani.",
    "Turkish": "Her çalışan yılda otuz gün izin kullanabilir; başvuru iki hafta önceden müdüre yapılmalıdır.",
    "Lithuanian": "Kiekvienas darbuotojas turi trisdešimt dienų atostogų; prašymą reikia pateikti prieš dvi savaites.",
    "Russian": "Отпуск составляет тридцать дней в год. Заявление подают за две недели, его утверждает руководитель.",
    "Capitals": "ВНИМАНИЕ: ОТПУСК СОСТАВЛЯЕТ ТРИДЦАТЬ ДНЕЙ В ГОД",
    "Ukrainian": "Кожен працівник має тридцять днів відпустки на рік; заяву подають за два тижні до її початку.",
    "Greek": "Κάθε υπάλληλος έχει τριάντα ημέρες άδεια τον χρόνο· η αίτηση υποβάλλεται δύο εβδομάδες νωρίτερα.",
    "Hebrew": "לכל עובד יש שלושים ימי חופשה בשנה. את הבקשה מגישים שבועיים מראש והמנהל מאשר אותה.",
    "Arabic": "لكل موظف ثلاثون يوما من الإجازة في السنة، ويقدم الطلب قبل أسبوعين ويوافق عليه المدير.",
    "Thai": "พนักงานทุกคนมีวันหยุดสามสิบวันต่อปี และต้องยื่นคำขอล่วงหน้าสองสัปดาห์",
    "Chinese": "员工每年享有三十天年假。请在系统中提前两周提交申请，并由部门经理批准。",
    "Taiwan": "員工每年享有三十天年假。請在系統中提前兩週提交申請，並由部門經理批准。",
    "Japanese": "従業員は年に三十日の休暇があります。二週間前までにシステムで申請してください。",
    "Korean": "직원은 매년 삼십 일의 휴가가 있습니다. 두 주 전에 시스템에서 신청하십시오.",
}
ENCODINGS = {
    **dict.fromkeys(("English", "German", "French", "Spanish", "Portuguese", "Italian"), ("cp1252",)),
    **dict.fromkeys(("Swedish", "Danish", "Icelandic"), ("cp1252",)),
    **dict.fromkeys(("Polish", "Czech", "Hungarian"), ("cp1250", "iso8859_2")),
    "Turkish": ("cp1254",), "Lithuanian": ("cp1257",), "Russian": ("cp1251", "koi8_r", "cp866"),
    "Capitals": ("cp1251",), "Ukrainian": ("cp1251", "koi8_u"), "Greek": ("cp1253",), "Hebrew": ("cp1255",),
    "Arabic": ("cp1256",), "Thai": ("cp874",), "Chinese": ("gb18030", "gbk"), "Taiwan": ("big5", "gb18030"),
    "Japanese": ("shift_jis", "euc_jp", "iso2022_jp"), "Korean": ("euc_kr", "cp949"),
}  # fmt: skip
PAIRS = [(language, each) for language in TEXTS for each in (*ENCODINGS[language], "utf-16-le", "utf-16-be", "utf-16")]
LONG = "Nothing but ASCII.\n" * 20_000


@pytest.mark.parametrize(("language", "encoding"), PAIRS)
def test_texts_are_read_in_the_encoding_that_they_have(language: str, encoding: str) -> None:
    text = TEXTS[language]
    assert decode(text.encode(encoding)) == text
    # Far behind what is looked at, and of more bytes than are.
    after = f"{text}\n" * (1 if "16" in encoding else 2_000)
    whole = after if "16" in encoding else f"{LONG}{after}"
    assert decode(whole.encode(encoding)) == whole


@pytest.mark.parametrize("language", TEXTS)
@pytest.mark.parametrize("before", ["", LONG])
def test_utf8_with_a_broken_byte_stays_utf8(language: str, before: str) -> None:
    text = f"{TEXTS[language]}\n" * 20
    assert decode(f"{before}{text}".encode() + b"\xe9!") == f"{before}{text}\ufffd!"
    assert decode(f"{before}{text}é".encode()[:-1]) == f"{before}{text}\ufffd"


def test_utf16_of_ascii_is_read_without_a_mark() -> None:
    for encoding in ("utf-16-le", "utf-16-be"):
        assert decode("name;value\r\nfirst;1\r\n".encode(encoding)) == "name;value\r\nfirst;1\r\n"


@pytest.mark.parametrize("size", [40, 400, 40_000])
def test_what_is_no_text_is_refused(size: int) -> None:
    with pytest.raises(DocumentUnsupported):
        decode(bytes(number * number * 7 % 251 for number in range(size)))


@pytest.mark.parametrize(
    ("declared", "encoding", "text"),
    [
        ("iso-8859-1", "cp1252", "A “quoted” word – 5 €"),
        ("gb2312", "gbk", "朱镕基說"),
        ("shift_jis", "cp932", "①から㈱まで"),
        ("euc-kr", "cp949", "똠방각하"),
        ("utf-16", "cp1252", "Größe"),
        ("unknown", "cp1252", "Größe"),
    ],
)
def test_declared_encodings_mean_what_browsers_take_them_for(declared: str, encoding: str, text: str) -> None:
    assert decode(text.encode(encoding), declared) == text
