"""Texts to tokenize, drawn at random: all planes of Unicode, blanks, digits, emoji, scripts, code and prose."""

import random
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
BLANKS = [
    " ",
    "  ",
    " " * 7,
    "\n",
    "\n\n\n",
    "\r\n",
    "\r",
    "\t",
    "\t\t",
    " \n ",
    "\u00a0",
    "\u2003",
    "\u3000",
    "\u2028",
]
BLANKS += ["\x0b\x0c", "\u200b", "\ufeff", " " * 40, "\u0085"]
EMOJI = ["👩‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪🇫🇷", "👍🏽", "❤️", "1️⃣", "🧑🏿‍🚀", "\u200d", "\ufe0f", "🏴󠁧󠁢󠁳󠁣󠁴󠁿", "🦙"]
WORDS = [
    "naïve",
    "cafe\u0301",
    "ÜBER",
    "straße",
    "日本語のテキスト",
    "русский",
    "العربية",
    "हिन्दी",
    "ภาษาไทย",
    "한국어",
]
WORDS += ["ᄒ\u1161\u11ab", "ﬁ①Ⅷｱ", "İstanbul", "ǅ", "ἀρχή", "ꙮ", "ⅷ", "中文，标点。", "བོད་", "a\u0308\u0323"]
SHORT = [
    "I'll",
    "it's",
    "DON'T",
    "we'Ve",
    "y'all'd've",
    "'s",
    "camelCaseWord",
    "HTTPServer",
    "x_1",
    "aB",
    "The",
    "QWERTY",
]
MARKS = [
    "</s>",
    "<s>",
    "<unk>",
    "<0x0A>",
    "[CLS]",
    "[UNK]",
    "##a",
    "<|endoftext|>",
    "<mine>",
    "\x00",
    "\x1f\x7f",
    "\ufffd",
]
SIGNS = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~§±×÷€“”…。，、؟।‘’"
DIGITS = "0123456789" * 3 + "٣४५０７²½"


@cache
def read_sources():
    """Return texts of this repository: pages, Python and C."""
    patterns = ("*.md", "docs/*.md", "core/src/isokern/llm/*.py", "plugins/cpu/src/isokern_cpu/kernels/*.c")
    paths = [path for pattern in patterns for path in sorted(ROOT.glob(pattern))[:25]]
    return [path.read_text(encoding="utf-8") for path in paths]


def draw_character(random):
    """Return a character: of any plane, or more often of the first ones."""
    last = random.choice([0x250, 0x3000, 0xFFFF, 0x1FFFF, 0x10FFFF])
    point = random.randrange(last + 1)
    return chr(point) if not 0xD800 <= point < 0xE000 else "\ufffd"


def draw_part(random):
    """Return a part of a text."""
    kind = random.randrange(12)
    if kind < 4:
        source = random.choice(read_sources())
        at = random.randrange(len(source))
        return source[at : at + random.randrange(1, 60)]
    if kind == 4:
        return "".join(draw_character(random) for _ in range(random.randrange(1, 8)))
    if kind == 5:
        return "".join(random.choice(DIGITS) for _ in range(random.randrange(1, 14)))
    if kind == 6:
        return "".join(random.choice(SIGNS) for _ in range(random.randrange(1, 6)))
    if kind == 7:
        return random.choice("aeX \n1!") * random.randrange(1, 30)
    return random.choice((EMOJI, WORDS, SHORT + MARKS, BLANKS)[kind - 8])


def draw_texts(seed, count):
    """Return `count` texts: the empty one first, then of one to six parts, often with spaces between them."""
    rng = random.Random(seed)
    texts = [""]
    while len(texts) < count:
        joint = rng.choice(["", " ", " "])
        texts.append(joint.join(draw_part(rng) for _ in range(rng.randrange(1, 7))))
    return texts[:count]
