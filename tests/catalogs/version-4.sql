BEGIN TRANSACTION;
CREATE TABLE cleaner (
	id TEXT NOT NULL, 
	"by" TEXT NOT NULL, 
	started_ms INTEGER NOT NULL, 
	seen_ms INTEGER NOT NULL, 
	stopped_ms INTEGER, 
	PRIMARY KEY (id)
);
INSERT INTO "cleaner" VALUES('f60b8c5fd085415192ef5f063c0ef718','laptop:1',1700000000000,1700000000000,1700000000000);
CREATE TABLE "commit" (
	id INTEGER NOT NULL, 
	kind TEXT NOT NULL, 
	topic TEXT, 
	created_ms INTEGER NOT NULL, 
	"by" TEXT NOT NULL, 
	detail TEXT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "commit" VALUES(1,'create','t',1700000000000,'laptop:1','1 partition(s)');
INSERT INTO "commit" VALUES(2,'append','t',1700000000000,'laptop:1','');
INSERT INTO "commit" VALUES(3,'roll','t',1700000000000,'laptop:1','');
INSERT INTO "commit" VALUES(4,'clean','t',1700000000000,'laptop:1','partition 0');
CREATE TABLE condemned_file (
	path TEXT NOT NULL, 
	condemned_ms INTEGER NOT NULL, 
	PRIMARY KEY (path)
);
CREATE TABLE consumer_offset (
	group_id TEXT NOT NULL, 
	topic_id INTEGER NOT NULL, 
	partition INTEGER NOT NULL, 
	committed INTEGER NOT NULL, 
	committed_ms INTEGER NOT NULL, 
	PRIMARY KEY (group_id, topic_id, partition), 
	FOREIGN KEY(topic_id, partition) REFERENCES "partition" (topic_id, partition) ON DELETE CASCADE
);
CREATE TABLE file (
	id INTEGER NOT NULL, 
	topic_id INTEGER NOT NULL, 
	partition INTEGER NOT NULL, 
	segment_base INTEGER NOT NULL, 
	base_offset INTEGER NOT NULL, 
	last_offset INTEGER NOT NULL, 
	records INTEGER NOT NULL, 
	bytes INTEGER NOT NULL, 
	tombstones INTEGER NOT NULL, 
	null_keys INTEGER NOT NULL, 
	first_ms INTEGER NOT NULL, 
	max_ms INTEGER NOT NULL, 
	footer_crc INTEGER NOT NULL, 
	path TEXT NOT NULL, 
	added_commit INTEGER NOT NULL, 
	retired_commit INTEGER, 
	PRIMARY KEY (id), 
	FOREIGN KEY(topic_id, partition) REFERENCES "partition" (topic_id, partition) ON DELETE CASCADE, 
	UNIQUE (path)
);
INSERT INTO "file" VALUES(1,1,0,0,0,1,2,1172,0,0,1700000000000,1700000000000,2726724398,'t/0/1700000000000-a3668d73e97a99b3.parquet',2,4);
INSERT INTO "file" VALUES(2,1,0,0,0,1,1,1143,0,0,1700000000000,1700000000000,3290050941,'t/0/1700000000000-a1787ae9331067e2.parquet',4,NULL);
CREATE TABLE group_claim (
	group_id TEXT NOT NULL, 
	topic_id INTEGER NOT NULL, 
	partition INTEGER NOT NULL, 
	member_id TEXT NOT NULL, 
	PRIMARY KEY (group_id, topic_id, partition), 
	FOREIGN KEY(topic_id, partition) REFERENCES "partition" (topic_id, partition) ON DELETE CASCADE
);
CREATE TABLE group_member (
	group_id TEXT NOT NULL, 
	member_id TEXT NOT NULL, 
	"by" TEXT NOT NULL, 
	topics JSON NOT NULL, 
	until_ms INTEGER NOT NULL, 
	PRIMARY KEY (group_id, member_id)
);
CREATE TABLE "partition" (
	topic_id INTEGER NOT NULL, 
	partition INTEGER NOT NULL, 
	log_start INTEGER NOT NULL, 
	log_end INTEGER NOT NULL, 
	first_dirty INTEGER NOT NULL, 
	exact_from INTEGER NOT NULL, 
	active_base INTEGER NOT NULL, 
	active_bytes INTEGER NOT NULL, 
	active_first_ms INTEGER, 
	claim TEXT, 
	claim_until_ms INTEGER, 
	failures INTEGER NOT NULL, 
	failure TEXT NOT NULL, 
	retry_after_ms INTEGER NOT NULL, 
	mirrored_ms INTEGER, 
	PRIMARY KEY (topic_id, partition), 
	FOREIGN KEY(topic_id) REFERENCES topic (id) ON DELETE CASCADE
);
INSERT INTO "partition" VALUES(1,0,0,2,2,0,2,0,NULL,NULL,NULL,0,'',0,NULL);
CREATE TABLE "pass" (
	id INTEGER NOT NULL, 
	topic_id INTEGER NOT NULL, 
	partition INTEGER NOT NULL, 
	commit_id INTEGER, 
	cause TEXT NOT NULL, 
	"by" TEXT NOT NULL, 
	started_ms INTEGER NOT NULL, 
	start INTEGER NOT NULL, 
	"end" INTEGER NOT NULL, 
	horizon_ms INTEGER NOT NULL, 
	dirty_ratio FLOAT NOT NULL, 
	delay_ms INTEGER NOT NULL, 
	records_in INTEGER NOT NULL, 
	records_out INTEGER NOT NULL, 
	removed JSON NOT NULL, 
	bytes_in INTEGER NOT NULL, 
	bytes_out INTEGER NOT NULL, 
	bytes_read INTEGER NOT NULL, 
	bytes_written INTEGER NOT NULL, 
	files_kept INTEGER NOT NULL, 
	files_rewritten INTEGER NOT NULL, 
	files_merged INTEGER NOT NULL, 
	files_written INTEGER NOT NULL, 
	keys INTEGER NOT NULL, 
	map_fill FLOAT NOT NULL, 
	shards INTEGER NOT NULL, 
	seconds JSON NOT NULL, 
	jobs JSON NOT NULL, 
	first_tombstone INTEGER, 
	error TEXT, 
	PRIMARY KEY (id), 
	FOREIGN KEY(topic_id, partition) REFERENCES "partition" (topic_id, partition) ON DELETE CASCADE
);
INSERT INTO "pass" VALUES(1,1,0,4,'forced, dirty ratio 1.00','laptop:1',1700000000000,0,2,1700086400000,1.0,0,2,1,'{"obsolete": 1, "tombstone": 0, "null key": 0}',1172,1143,546,1143,0,1,0,1,1,6.7055225372314453125e-07,1,'{"mark": 0.003043837000404892, "sweep": 0.003540597999744932, "commit": 0.00501668900005825}','[]',NULL,NULL);
CREATE TABLE retired_file (
	path TEXT NOT NULL, 
	bytes INTEGER NOT NULL, 
	delete_after_ms INTEGER NOT NULL, 
	PRIMARY KEY (path)
);
INSERT INTO "retired_file" VALUES('t/0/1700000000000-a3668d73e97a99b3.parquet',1172,1700003600000);
CREATE TABLE store (
	schema_version INTEGER NOT NULL, 
	id TEXT NOT NULL, 
	data_root TEXT NOT NULL, 
	created_ms INTEGER NOT NULL
);
INSERT INTO "store" VALUES(4,'ea3f67350d1a4cf28f98d79cb8da5d4b','data',1700000000000);
CREATE TABLE store_config (
	"key" TEXT NOT NULL, 
	value TEXT NOT NULL, 
	PRIMARY KEY ("key")
);
CREATE TABLE topic (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	name TEXT NOT NULL, 
	created_ms INTEGER NOT NULL, 
	is_scattered BOOLEAN NOT NULL, 
	source JSON, 
	UNIQUE (name)
);
INSERT INTO "topic" VALUES(1,'t',1700000000000,0,NULL);
CREATE TABLE topic_config (
	topic_id INTEGER NOT NULL, 
	"key" TEXT NOT NULL, 
	value TEXT NOT NULL, 
	PRIMARY KEY (topic_id, "key"), 
	FOREIGN KEY(topic_id) REFERENCES topic (id) ON DELETE CASCADE
);
CREATE TABLE writer (
	writer_id TEXT NOT NULL, 
	topic_id INTEGER NOT NULL, 
	version INTEGER NOT NULL, 
	result TEXT NOT NULL, 
	appended_ms INTEGER NOT NULL, 
	is_session BOOLEAN NOT NULL, 
	PRIMARY KEY (writer_id, topic_id)
);
CREATE UNIQUE INDEX live_file ON file (topic_id, partition, last_offset) WHERE retired_commit IS NULL;
CREATE INDEX horizon ON "pass" (topic_id, partition) WHERE first_tombstone IS NOT NULL;
CREATE INDEX newest_pass ON "pass" (topic_id, id);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('topic',1);
COMMIT;
