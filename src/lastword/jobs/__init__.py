"""Jobs: the same function on many units of work, spread over tasks.

`runner` what a job is · `session` Spark, found or started · `spark` jobs as Spark runs them ·
`archive` a faster start

pyspark is imported here only, and only when a job is run: `import lastword` does not load it.
"""
