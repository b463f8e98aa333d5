"""The catalog: a SQL database that is the only truth about which files make up the log.

`schema` the tables · `engine` the database · `queries` what can be asked · `commits` what changes
the log, with `rows` · `topics` topics and settings · `cleaning` what the cleaner asks and notes · `claims`
who cleans what · `groups` consumer groups · `writers` exactly-once writers · `retired` files on their
way out · `migrations` catalogs of older versions
"""
