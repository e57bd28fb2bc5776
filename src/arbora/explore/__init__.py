"""Look at a model: the folder that holds it with all there is to see, and what is written into it."""
