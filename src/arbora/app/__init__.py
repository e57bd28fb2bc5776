"""What a person does with documents: read them, train a model, evaluate it, describe it, save it, file new documents.

Each module is usable from Python and prints nothing; ``arbora.cli`` parses arguments and prints.

======================  ============================================================================
`reading`, `documents`  read documents from files and folders; ids, labels, times, duplicates
`labels`                labels of documents as nodes of a tree
`text_rows`             from texts to rows of numbers
`classifiers`           the classifiers by name, and their flat baselines
`text_classifier`       classes of raw texts: `TextClassifier`; `text_choice` chooses features and model
`training`              train a classifier and measure it, or tune it: `train_classifier`, `tune_classifier`
`topic_model`           topics of raw texts: `TopicModel`; `topic_edits` merges, splits and renames them
`topics`                find topics in documents: `discover_topics`
`expansion`             file a pile into known and new groups: `expand_documents`
`evaluation`            measure a classifier, and print the result as tables
`contents`              describe a model and its documents
`folder`                model folders on disk: `write_folder`, `open_folder`
`stored_edits`          edit the topic model of a folder
`answers`, `filing`     answers for new rows and for new documents
======================  ============================================================================
"""
