"""Raw text to rows on the unit sphere: tokens, stop words, stems, n-grams and ``ltc`` weights."""

from arbora.text.counts import LtcTransformer
from arbora.text.ltc import LtcVectorizer
from arbora.text.stop_words import ENGLISH_STOP_WORDS

__all__ = ["ENGLISH_STOP_WORDS", "LtcTransformer", "LtcVectorizer"]
