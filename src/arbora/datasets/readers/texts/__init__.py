"""Texts with labels: JSONL, JSON, CSV, Parquet, and folders of text, HTML, PDF and Word files.

==================  ================================================================================
`records`           one text with its label: fields, how to read, the check of a record
`json_records`      JSONL and JSON
`delimited`         CSV and TSV
`parquet`           Parquet, through pandas
`folder`            files of a folder
`html_text`         text of HTML
`office`            text of PDF and Word files
`collect`           `read_jsonl`, `read_csv`, `read_folder`: all texts at once
==================  ================================================================================

The readers yield one record at a time, or, for a record that cannot be read, its error.
"""

from arbora.datasets.readers.texts.collect import FolderData, TextData, read_csv, read_folder, read_jsonl
from arbora.datasets.readers.texts.delimited import csv_records, csv_rows
from arbora.datasets.readers.texts.folder import folder_rows
from arbora.datasets.readers.texts.json_records import json_records, jsonl_row
from arbora.datasets.readers.texts.records import Fields, Found, Reading, TextRow, join_labels

__all__ = [
    "Fields",
    "FolderData",
    "Found",
    "Reading",
    "TextData",
    "TextRow",
    "csv_records",
    "csv_rows",
    "folder_rows",
    "join_labels",
    "json_records",
    "jsonl_row",
    "read_csv",
    "read_folder",
    "read_jsonl",
]
