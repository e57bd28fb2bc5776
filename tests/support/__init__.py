"""Problems, models and folders that several test modules use."""
