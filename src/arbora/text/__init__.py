"""Text vectorisers: tokens, stop words, stems, n-grams and ``ltc`` weights; rows have unit length."""

from arbora.text.counts import LtcTransformer
from arbora.text.ltc import LtcVectorizer
from arbora.text.stop_words import ENGLISH_STOP_WORDS

__all__ = ["ENGLISH_STOP_WORDS", "LtcTransformer", "LtcVectorizer"]
