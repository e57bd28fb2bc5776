"""What a person does with documents: read them, train a model, evaluate it, describe it, save it, file new documents.

Each module is usable from Python and prints nothing; ``arbora.cli`` parses arguments and prints.

======================  ============================================================================
`documents`             read documents from files and folders; labels, hierarchies, times
`text_rows`             from texts to rows of numbers
`classifiers`           the classifiers by name, and their flat baselines
`training`              train a classifier on documents and measure it: `train_classifier`
`tuning`                choose cost and coupling by cross-validation: `tune_classifier`
`topic_model`           topics of raw texts: `TopicModel`
`topics`                find topics in documents: `discover_topics`
`expansion`             file a pile into known and new groups: `expand_documents`
`evaluation`            measure a classifier; `evaluation_tables` prints the result
`contents`              describe a model and its documents
`folder`                model folders on disk: `write_folder`, `open_folder`
`answers`, `filing`     answers for new rows and for new documents
======================  ============================================================================
"""
