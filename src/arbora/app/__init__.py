"""What a person does with documents: read, fit, judge, describe, keep, ask."""
