"""Stop words: the built-in English list, and the normalisation of a user's list.

The English list contains function words only: articles, pronouns, prepositions, conjunctions, auxiliaries and
connecting adverbs, grouped by word class. Words such as "back", "second" or "well" are excluded because they are
also nouns or adjectives. Contractions are listed as the tokens they are split into: "don't" is "don" and "t".
"""

from collections.abc import Callable, Iterable

from arbora.core.estimator import warn_caller

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

    Parameters
    ----------
    stop_words : {"english"}, iterable of str or None
        The parameter of :class:`~arbora.text.LtcVectorizer`.
    normalize, split : callable
        Normalisation and tokenisation of a document. A user's list is normalised too, so "The" removes "the". A
        word that `split` breaks into several tokens can never match; a warning lists such words.

    Returns
    -------
    frozenset of str

    Examples
    --------
    >>> sorted(resolve_stop_words(["The", "of"], str.lower, str.split))
    ['of', 'the']
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
