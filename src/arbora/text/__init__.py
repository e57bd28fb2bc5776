"""Text vectorisers: tokens, stop words, stems, n-grams and ``ltc`` weights; rows have unit length."""

from arbora.text.counts import LtcTransformer
from arbora.text.languages import ENGLISH_STOP_WORDS
from arbora.text.ltc import LtcVectorizer

__all__ = ["ENGLISH_STOP_WORDS", "LtcTransformer", "LtcVectorizer"]
