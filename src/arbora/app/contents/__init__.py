"""Describe a fitted model and its documents: the content of a model folder, or of a page.

====================  ==============================================================================
`classifier`          a classifier: tree, words, documents, evaluation
`topics`              a topic model: tree, words, documents, topics over time
`groups`              an extended collection: known and new groups, words, documents, proposals
`fitted_model`        any fitted model with rows in memory
`nodes`               sizes, words, titles and representative documents of nodes
`sample`              the sample of documents that is kept
`positions`           positions of documents and nodes on the map
`topic_times`         topics in each time bin
====================  ==============================================================================
"""
