"""Describe a fitted model and its documents: the content of a model folder, or of a page.

====================  ==============================================================================
`classifier`          a classifier: tree, words, documents, evaluation
`topics`              a topic model: tree, words, documents, topics over time
`groups`              an extended collection: known and new groups, words, documents, proposals
`fitted_model`        any fitted model with rows in memory
`nodes`               sizes, words, titles, representative documents, and the sample that is kept
`words`               typical words of groups of documents
`positions`           positions of documents and nodes on the map
====================  ==============================================================================
"""
