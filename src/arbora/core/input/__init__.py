"""What comes in: validation of matrices and labels, and the division of rows into folds."""
