"""The log: `records` → `batch` → `append`, and `read` back."""
