"""Writing systems: text without spaces between words, emoji, and the script of a language.

Chinese, Japanese, Thai, Lao, Khmer and Burmese text has no spaces between words. Such a run of characters is cut into
overlapping n-grams: of one and two ideographs or kana, of two and three letters of the other scripts. An emoji, with
its modifiers, is a token. Combining marks, such as the vowel signs of Hindi, belong to the word they stand in.
"""

import re
import sys
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

_IDEOGRAPHS = (
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f"
    "\U00020000-\U0003fffd"
)
_UNSPACED_LETTERS = "\u0e01-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
_UNSPACED = _IDEOGRAPHS + _UNSPACED_LETTERS
_PICTURES = (
    "\u203c\u2049\u2600-\u27bf\u2b05-\u2b07\u2b1b\u2b1c\u2b50\u2b55"
    "\U0001f000-\U0001f1e5\U0001f200-\U0001f3fa\U0001f400-\U0001faff"
)
_EMOJI = (
    "[\U0001f1e6-\U0001f1ff]{2}|"  # flags
    f"[{_PICTURES}][\ufe0f\U0001f3fb-\U0001f3ff]*(?:\u200d[{_PICTURES}][\ufe0f\U0001f3fb-\U0001f3ff]*)*"
)
_SAMPLE = 500  # texts whose script is determined
_SAMPLE_CHARACTERS = 2000  # of each of them
_LEAST_SHARE = 0.5  # of the letters in the script of the language
_SCRIPT_OF = {
    "arabic": "ARABIC",
    "armenian": "ARMENIAN",
    "greek": "GREEK",
    "hindi": "DEVANAGARI",
    "nepali": "DEVANAGARI",
    "russian": "CYRILLIC",
    "tamil": "TAMIL",
    "yiddish": "HEBREW",
}
_SEVERAL_SCRIPTS = ("serbian", "none")


@lru_cache(maxsize=1)
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    """Return the pattern of tokens, the same with words of one character, and a character of an unspaced script."""
    every = (chr(code) for code in range(0x300, min(sys.maxunicode, 0xFFFF)))
    marks = "".join(one for one in every if unicodedata.category(one) in ("Mn", "Mc"))
    marks = re.sub(f"[{_UNSPACED}\ufe0f]", "", marks)
    letter = rf"(?:[^\W{_UNSPACED}]|[{marks}\u200c\u200d])"
    token = rf"[{_UNSPACED}]+|{_EMOJI}|[^\W{_UNSPACED}]{letter}"
    return re.compile(token + "+"), re.compile(token + "*"), re.compile(f"[{_UNSPACED}]")


def split_any_script(text: str, least: int = 2) -> list[str]:
    r"""Split text of any script into tokens: words of `least` (1 or 2) or more characters, n-grams, emoji.

    Examples
    --------
    >>> split_any_script("naïve 机器学 ok👍")
    ['naïve', '机', '器', '学', '机器', '器学', 'ok', '👍']
    """
    longer, every, unspaced = _patterns()
    found = (longer if least > 1 else every).findall(text)
    if unspaced.search(text) is None:
        return found
    split: list[str] = []
    for one in found:
        if unspaced.match(one):
            split += _n_grams(one)
        else:
            split.append(one)
    return split


def _n_grams(run: str) -> list[str]:
    ideographs = re.match(f"[{_IDEOGRAPHS}]", run) is not None
    lengths = (1, 2) if ideographs else (2, 3)
    found = [run[start : start + n] for n in lengths for start in range(len(run) - n + 1)]
    return found or [run]


def is_one_letter(token: str) -> bool:
    """Return whether a token is a word of one character, which `split_any_script` drops unless `least` is 1.

    Examples
    --------
    >>> [is_one_letter(token) for token in ("x", "é", "ox", "学", "👍")]
    [True, True, False, False, False]
    """
    return len(token) == 1 and re.match(r"\w", token) is not None and _patterns()[2].match(token) is None


def letter_shares(texts: Sequence[str]) -> dict[str, float]:
    """Return the share of each script among the letters of a sample of texts.

    Examples
    --------
    >>> letter_shares(["abc", "д"])
    {'LATIN': 0.75, 'CYRILLIC': 0.25}
    """
    step = max(1, len(texts) // _SAMPLE)
    counts: dict[str, int] = {}
    for text in texts[::step]:
        for letter in text[:_SAMPLE_CHARACTERS]:
            if letter.isalpha():
                script = "LATIN" if letter < "\u0250" else unicodedata.name(letter, "OTHER").split()[0]
                counts[script] = counts.get(script, 0) + 1
    total = sum(counts.values())
    return {script: count / total for script, count in counts.items()}


def without_spaces(texts: Sequence[str]) -> bool:
    """Return whether most letters belong to scripts without spaces between words.

    Examples
    --------
    >>> without_spaces(["机器学习"]), without_spaces(["a model"])
    (True, False)
    """
    unspaced = _patterns()[2]
    step = max(1, len(texts) // _SAMPLE)
    some = "".join(text[:_SAMPLE_CHARACTERS] for text in texts[::step])
    letters = sum(map(str.isalpha, some))
    return 2 * len(unspaced.findall(some)) > max(letters, 1)


def script_warning(texts: Sequence[str], language: str | None) -> str | None:
    """Return a warning if the script of the texts is not that of the language; None if it is.

    Examples
    --------
    >>> script_warning(["рыбы плавают"], "english")
    'the texts have mostly Cyrillic letters, but the language is english: choose another language, or none'
    >>> script_warning(["fish swim"], "english")
    """
    if language is None or language in _SEVERAL_SCRIPTS:
        return None
    shares = letter_shares(texts)
    if not shares or shares.get(_SCRIPT_OF.get(language, "LATIN"), 0.0) >= _LEAST_SHARE:
        return None
    script = max(shares, key=lambda name: shares[name])
    names = {
        "CJK": "Chinese characters",
        "HIRAGANA": "Japanese characters",
        "KATAKANA": "Japanese characters",
    }
    found = names.get(script, script.capitalize() + " letters")
    return f"the texts have mostly {found}, but the language is {language}: choose another language, or none"
