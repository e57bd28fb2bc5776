"""Writing systems: text without spaces between words, emoji, and the script of a language.

Chinese, Japanese, Thai, Lao, Khmer and Burmese text has no spaces between words. Such a run of characters is cut into
overlapping n-grams: of one and two ideographs or kana, of two and three letters of the other scripts. An emoji, with
its modifiers, is a token. Combining marks, such as the vowel signs of Hindi, belong to the word they stand in.
"""

import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

from arbora.core.estimator import warn_caller

# --- Stop words: the built-in English list, and the normalisation of a user's list --------------------------
#
# The English list contains function words only: articles, pronouns, prepositions, conjunctions, auxiliaries and
# connecting adverbs, grouped by word class. Words such as "back", "second" or "well" are excluded because they are
# also nouns or adjectives. Contractions are listed as the tokens they are split into: "don't" is "don" and "t".


_ARTICLES_AND_QUANTIFIERS = """
a an the all another any both each either enough every few fewer less many more most much neither no none
other others own same several some such
"""
_PRONOUNS = """
i me my mine myself we us our ours ourselves you your yours yourself yourselves thou thee thy he him his
himself she her hers herself it its itself they them their theirs themselves one oneself this that these those
who whom whose whoever whomever which whichever what whatever anybody anyone anything everybody everyone
everything nobody nothing somebody someone something
"""
_PREPOSITIONS = """
about above across after against along alongside amid among amongst around as at before behind below beneath
beside besides between beyond by concerning despite down during except for from in inside into like near of
off on onto out outside over past per regarding round since through throughout till to toward towards under
underneath until unto up upon via with within without
"""
_CONJUNCTIONS = """
albeit although and because but if lest nor or so than though unless when whenever where whereas wherever
whereby wherein whereupon whether while whilst yet
"""
_AUXILIARIES = """
am is are was were be been being do does did doing done have has had having can cannot could may might must
ought shall should will would
"""
_ADVERBS = """
again ago almost already also altogether always anyhow anyway anywhere apart away else elsewhere especially
even ever everywhere further furthermore hardly hence here hereby herein how however indeed instead just later
likewise meanwhile merely moreover mostly namely nearly never nevertheless nonetheless not now nowhere often
once only otherwise perhaps quite rather really seldom simply sometimes somewhat somewhere somehow soon still
then thence there thereafter thereby therefore therein thereupon thus together too very why
"""
_CONTRACTIONS = """
ain aren couldn didn doesn don hadn hasn isn ll mightn mustn needn re shan shouldn ve wasn weren wouldn
"""

ENGLISH_STOP_WORDS = frozenset(
    " ".join(
        (
            _ARTICLES_AND_QUANTIFIERS,
            _PRONOUNS,
            _PREPOSITIONS,
            _CONJUNCTIONS,
            _AUXILIARIES,
            _ADVERBS,
            _CONTRACTIONS,
        )
    ).split()
)
"""English function words, in lower case."""


def resolve_stop_words(
    stop_words: str | Iterable[str] | None,
    normalize: Callable[[str], str],
    split: Callable[[str], list[str]],
) -> frozenset[str]:
    """Return stop words normalised like tokens.

    `stop_words` is the parameter of :class:`~arbora.text.LtcVectorizer`. `normalize` and `split` act on a document. A
    user's list is normalised too, so "The" removes "the". A word that `split` breaks into several tokens can never
    match; a warning lists such words.
    """
    if stop_words is None:
        return frozenset()
    if isinstance(stop_words, str):  # "english", by parameter validation
        return frozenset(map(normalize, ENGLISH_STOP_WORDS))
    words = list(stop_words)
    for position, word in enumerate(words):
        if not isinstance(word, str):
            raise TypeError(f"stop_words[{position}] is {word!r}: stop words must be str")
    normal = frozenset(map(normalize, words))
    broken = sorted(word for word in normal if split(word) not in ([], [word]))
    if broken:
        warn_caller(
            f"stop words {broken[:5]} never match, because token_pattern splits or shortens them; "
            "list the resulting tokens instead"
        )
    return normal


# --- Writing systems: text without spaces between words, emoji, and the script of a language ----------------


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
_MIN_SHARE = 0.5  # of the letters in the script of the language
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
    characters = map(chr, range(0x300, min(sys.maxunicode, 0xFFFF)))
    marks = "".join(mark for mark in characters if unicodedata.category(mark) in ("Mn", "Mc"))
    marks = re.sub(f"[{_UNSPACED}\ufe0f]", "", marks)
    letter = rf"(?:[^\W{_UNSPACED}]|[{marks}\u200c\u200d])"
    token = rf"[{_UNSPACED}]+|{_EMOJI}|[^\W{_UNSPACED}]{letter}"
    return re.compile(token + "+"), re.compile(token + "*"), re.compile(f"[{_UNSPACED}]")


def split_any_script(text: str, min_length: int = 2) -> list[str]:
    r"""Split text of any script into tokens: words of `min_length` (1 or 2) or more characters, n-grams, emoji."""
    longer, all_words, unspaced = _patterns()
    tokens = (longer if min_length > 1 else all_words).findall(text)
    if unspaced.search(text) is None:
        return tokens
    return [part for token in tokens for part in (_n_grams(token) if unspaced.match(token) else [token])]


def _n_grams(run: str) -> list[str]:
    ideographs = re.match(f"[{_IDEOGRAPHS}]", run) is not None
    lengths = (1, 2) if ideographs else (2, 3)
    return [run[start : start + n] for n in lengths for start in range(len(run) - n + 1)] or [run]


def is_one_letter(token: str) -> bool:
    """Return whether a token is a word of one character, which `split_any_script` drops unless `min_length` is 1.

    Examples
    --------
    >>> [is_one_letter(token) for token in ("x", "é", "ox", "学", "👍")]
    [True, True, False, False, False]
    """
    return len(token) == 1 and re.match(r"\w", token) is not None and _patterns()[2].match(token) is None


def letter_shares(texts: Sequence[str]) -> dict[str, float]:
    """Return the share of each script, such as "LATIN", among the letters of a sample of texts.

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
    """Return whether most letters belong to scripts without spaces between words."""
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
    if not shares or shares.get(_SCRIPT_OF.get(language, "LATIN"), 0.0) >= _MIN_SHARE:
        return None
    script = max(shares, key=lambda name: shares[name])
    names = {
        "CJK": "Chinese characters",
        "HIRAGANA": "Japanese characters",
        "KATAKANA": "Japanese characters",
    }
    letters = names.get(script, script.capitalize() + " letters")
    return (
        f"the texts have mostly {letters}, but the language is {language}: choose another language, or none"
    )
