"""Files that `holdfast demo` and `holdfast init` write. They are read as text, and checked like all other code."""
