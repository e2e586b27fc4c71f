"""The application behind `serve`, from start to end."""
