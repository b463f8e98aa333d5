"""Files: `root` where they lie, `parquet` what is in them."""
