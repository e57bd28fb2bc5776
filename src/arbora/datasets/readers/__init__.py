"""Readers of file formats.

==================================  ============================================================================
`files`                             open files, packed or not; encodings; limits
`skipped`                           what could not be read, by reason
`records`                           JSONL, JSON, CSV, TSV and Parquet: one text with its label at a time
`html_text`                         text of HTML
`folder`                            files of a folder: text, HTML, PDF, Word, and files of records
`texts`                             `read_jsonl`, `read_json`, `read_csv`, `read_folder`: all texts at once
`svmlight`, `npz`, `arff`, `cluto`  matrices
==================================  ============================================================================
"""
