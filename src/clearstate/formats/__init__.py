"""Files of trained models: read, cleared and written with NumPy alone."""
