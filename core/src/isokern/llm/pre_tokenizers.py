"""How each byte-level vocabulary cuts text before merging: the names of `tokenizer.ggml.pre`, and their patterns.

The patterns are those of the models' own `tokenizer.json`, in the syntax of Oniguruma, which the library `tokenizers`
uses; names that follow one pattern share a row. They are applied one after the other: each match of a pattern is a
piece, and so is the text between matches.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Cut:
    """A way to cut text.

    `whole`: a piece that is a token is not merged from its parts. `bos`: BOS comes first where `add_bos_token` is
    missing. `sep`: the same at the end, for SEP and `add_sep_token`. `raw`: tokens are plain text, with U+2581 for a
    space and tokens of bytes, not letters that stand for bytes.
    """

    patterns: tuple[str, ...]
    whole: bool = False
    bos: bool = False
    sep: bool = False
    raw: bool = False


_SUFFIX = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CJK = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"


def _cut_plainly(most: str, signs: str = r" ?[^\s\p{L}\p{N}]+[\r\n]*", word: str = _WORD) -> str:
    """Return the pattern of Llama 3 and Qwen 2: contractions, words, numbers of so many digits, signs, spaces."""
    return f"{_SUFFIX}|{word}|{_N}{most}|{signs}|{_SPACES}"


def _cut_at_case(suffix: str, digits: str) -> str:
    """Return the pattern of Tekken and GPT-4o: words are cut before an upper-case letter after a lower-case one."""
    words = f"{_START}{_UPPER}*{_LOWER}+{suffix}|{_START}{_UPPER}+{_LOWER}*{suffix}"
    return f"{words}|{digits}| ?[^\\s\\p{{L}}\\p{{N}}]+[\\r\\n/]*|{_SPACES}"


_N, _START = r"\p{N}", r"[^\r\n\p{L}\p{N}]?"
_LLAMA3, _QWEN2 = _cut_plainly("{1,3}"), _cut_plainly("")
_ASCII_SIGNS = r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"""
_DEEPSEEK3 = _ASCII_SIGNS + r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_NO_HAN = "&&[^\\p{Han}]]"
_KIMI = "|".join(
    (
        r"[\p{Han}]+",
        f"{_START}{_UPPER[:-1]}{_NO_HAN}*{_LOWER[:-1]}{_NO_HAN}+{_SUFFIX}?",
        f"{_START}{_UPPER[:-1]}{_NO_HAN}+{_LOWER[:-1]}{_NO_HAN}*{_SUFFIX}?",
        rf"\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}",
    )
)
# Letters with case, as DeepSeek's first tokenizer lists them
_CASED = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376\u0377"
    "\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556"
    "\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a"
    "\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4"
    "\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc"
    "\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f"
    "\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b"
    "\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a"
    "\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2"
    "\U000118a0-\U000118df\U0001e900-\U0001e943"
)
_SIGNS = "!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002"
_EAST = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
_AFMOE = (
    "[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf\u0e00-\u0e7f"
    "\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+"
)
_YOUTU = (
    "[\uac00-\ud7a3\u3131-\u318e]+|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f"
    "\ufe30-\ufe4f]+|[\u3105-\u312f]+|[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
)
# A number that stands alone in threes from its end. The models' own `\d{1,3}(?=(?:\d{3})*(?!\d))` cuts the same, and
# reads the whole rest of a number at each of its digits, which takes seconds for one that is long
_IN_THREES = (r"\A\d{1,2}(?=(?:\d{3})++\z)", r"\d{3}")
_BLOOM = " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"

_ROWS: tuple[tuple[str, Cut], ...] = (
    ("default", Cut((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"))),
    (
        "gpt-2 phi-2 jina-es jina-de jina-v2-es jina-v2-de gigachat a.x-4.0 mellum modern-bert mpt olmo jais trillion"
        " granite-docling exaone4",
        Cut((_GPT2,)),
    ),
    ("jina-v1-en jina-v2-code roberta-bpe", Cut((_GPT2,), sep=True)),
    (
        "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
        Cut((_LLAMA3,), whole=True, bos=True),
    ),
    ("dbrx smaug-bpe glm4 chatglm-bpe", Cut((_LLAMA3,))),
    ("minicpm5", Cut((r"\p{N}{1,3}", _cut_plainly("+")), whole=True)),
    (
        "jais-2",
        Cut(
            (
                _LLAMA3.removesuffix(r"|\s+(?!\S)|\s+")
                + "".join(rf"|\s{{{n}}}(?!\S)" for n in (512, 256, 128, 64, 32, 16, 8, 4))
                + r"|\s{1,2}(?!\S)|\s{1}",
            )
        ),
    ),
    ("qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2", Cut((_QWEN2,))),
    (
        "qwen35",
        Cut((_cut_plainly("", r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*", r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+"),)),
    ),
    ("ufakzeka", Cut((_QWEN2.removeprefix(f"{_SUFFIX}|"),))),
    ("laguna", Cut((r"[^\n]+|[\n]+", _QWEN2))),
    ("seed-coder", Cut((_cut_plainly("{1}", r" ?[^\s\p{L}\p{N}\r\n]+"),))),
    (
        "bailingmoe bailingmoe2 llada-moe",
        Cut(
            (
                r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*"
                r"|\s*[\r\n]|\s+(?!\S)|\s+",
            )
        ),
    ),
    (
        "exaone-moe",
        Cut(
            (
                _SUFFIX + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?"
                r"|\s*[\r\n]|\s+(?!\S)|\s+",
            )
        ),
    ),
    (
        "deepseek-llm",
        Cut((r"[\r\n]", rf"\s?[{_CASED}]+", rf"\s?[{_SIGNS}]+", r"\s+$", _EAST, r"\p{N}+")),
    ),
    ("deepseek-coder", Cut((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _EAST, r"\p{N}"))),
    ("deepseek-v3 hunyuan-dense joyai-llm hy_v4", Cut((r"\p{N}{1,3}", _CJK, _DEEPSEEK3))),
    (
        "spark2_5",
        Cut(
            (
                r"\p{N}{1,3}",
                _CJK,
                _ASCII_SIGNS + r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+",
                r"\p{N}",
            )
        ),
    ),
    ("afmoe", Cut((r"\p{Nd}+", *_IN_THREES, _AFMOE, _DEEPSEEK3))),
    ("youtu", Cut((_YOUTU, _cut_at_case(f"{_SUFFIX}?", r"\p{N}")), whole=True)),
    ("falcon", Cut((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, r"[0-9][0-9][0-9]"))),
    ("starcoder refact command-r smollm codeshell exaone minerva-7b mellum2", Cut((r"\p{N}", _GPT2))),
    ("bloom poro-chat gpt3-finnish", Cut((_BLOOM,))),
    ("viking", Cut((_BLOOM, r"\p{N}"))),
    ("tekken", Cut((_cut_at_case("", r"\p{N}"),), whole=True, bos=True)),
    ("gpt-4o llama4 kanana2 talkie minimax-m2", Cut((_cut_at_case(f"{_SUFFIX}?", r"\p{N}{1,3}"),))),
    ("granite-embed-multi-97m", Cut((_cut_at_case(f"{_SUFFIX}?", r"\p{N}{1,3}"),), whole=True)),
    ("tiny_aya cohere2moe", Cut((r"(?<!\d)\d++\b", _IN_THREES[0], _cut_at_case(f"{_SUFFIX}?", r"\p{N}{1,3}")))),
    ("kimi-k2", Cut((_KIMI,))),
    ("superbpe", Cut((r"\p{N}+", r"(?<!\d)\d{0,2}\K(?=(?:\d{3})++(?!\d))", r"\d{3}(?=\d)"))),
    (
        "chameleon",
        Cut(
            (
                r"<sentinel:[0-9]+>",
                r"(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
                r"([\t\n]|    |  )",
                r"\p{N}",
                r"[\p{P}!-/:-@\[-`{-~]",
                _GPT2,
            ),
            bos=True,
        ),
    ),
    ("gemma4 granite-embed-multi-311m", Cut((r"[^\n]+|[\n]+",), bos=True, raw=True)),
    ("sarvam-moe", Cut((r"[^\n]+|[\n]+",), raw=True)),
)
CUTS: dict[str, Cut] = {name: cut for names, cut in _ROWS for name in names.split()}
