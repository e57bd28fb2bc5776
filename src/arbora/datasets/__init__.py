"""Data: readers of the field's formats, real sets by name, generators with known truth, a built-in corpus."""

from arbora.datasets.arff import HmcData, read_hmc_arff
from arbora.datasets.base import Dataset, Split
from arbora.datasets.cluto import ClutoData, read_cluto
from arbora.datasets.errors import DataFormatError
from arbora.datasets.load import available, data_folder, load
from arbora.datasets.svmlight import SvmlightData, read_svmlight, read_xmlc
from arbora.datasets.texts import FolderData, TextData, read_csv, read_folder, read_jsonl

__all__ = [
    "ClutoData",
    "DataFormatError",
    "Dataset",
    "FolderData",
    "HmcData",
    "Split",
    "SvmlightData",
    "TextData",
    "available",
    "data_folder",
    "load",
    "read_cluto",
    "read_csv",
    "read_folder",
    "read_hmc_arff",
    "read_jsonl",
    "read_svmlight",
    "read_xmlc",
]
