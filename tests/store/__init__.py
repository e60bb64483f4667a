"""What the port of the store means: one suite, every backend; and what each backend alone must survive."""
