"""The catalog: a SQL database that is the only truth about which files make up the log.

`schema` the tables · `engine` the database · `queries` what can be asked · `commits` what changes
the log · `topics` topics and settings · `writers` exactly-once writers · `retired` files on their
way out
"""
