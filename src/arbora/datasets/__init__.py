"""Data sets: readers of common file formats, real sets by name, generators with known truth, a built-in corpus."""

from arbora.datasets.base import DataFileError, DataFormatError, Dataset, Split
from arbora.datasets.load import available, data_folder, load
from arbora.datasets.python_docs import load_python_docs
from arbora.datasets.readers.arff import HmcData, read_hmc_arff
from arbora.datasets.readers.cluto import ClutoData, read_cluto
from arbora.datasets.readers.skipped import SkippedRecords, SkippedWarning
from arbora.datasets.readers.svmlight import SvmlightData, read_svmlight, read_xmlc
from arbora.datasets.readers.texts import (
    FolderData,
    TextData,
    read_csv,
    read_folder,
    read_json,
    read_jsonl,
)
from arbora.datasets.synthetic.text import TextTruth, make_hierarchical_text
from arbora.datasets.synthetic.vmf import VMFTruth, make_hierarchical_vmf, make_temporal_vmf, make_vmf_mixture

__all__ = [
    "ClutoData",
    "DataFileError",
    "DataFormatError",
    "Dataset",
    "FolderData",
    "HmcData",
    "SkippedRecords",
    "SkippedWarning",
    "Split",
    "SvmlightData",
    "TextData",
    "TextTruth",
    "VMFTruth",
    "available",
    "data_folder",
    "load",
    "load_python_docs",
    "make_hierarchical_text",
    "make_hierarchical_vmf",
    "make_temporal_vmf",
    "make_vmf_mixture",
    "read_cluto",
    "read_csv",
    "read_folder",
    "read_hmc_arff",
    "read_json",
    "read_jsonl",
    "read_svmlight",
    "read_xmlc",
]
