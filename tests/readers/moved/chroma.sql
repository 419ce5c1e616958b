BEGIN TRANSACTION;
CREATE TABLE acquire_write (
                id INTEGER PRIMARY KEY,
                lock_status INTEGER NOT NULL
            );
INSERT INTO "acquire_write" VALUES(1,1);
CREATE TABLE collection_metadata (
    collection_id TEXT REFERENCES collections(id) ON DELETE CASCADE,
    key TEXT NOT NULL,
    str_value TEXT,
    int_value INTEGER,
    float_value REAL, bool_value INTEGER,
    PRIMARY KEY (collection_id, key)
);
CREATE TABLE "collections" (
    id TEXT PRIMARY KEY, -- unique globally
    name TEXT NOT NULL, -- unique per database
    dimension INTEGER,
    database_id TEXT NOT NULL REFERENCES databases(id) ON DELETE CASCADE, config_json_str TEXT, schema_str TEXT,
    UNIQUE (name, database_id)
);
INSERT INTO "collections" VALUES('f7d21979-2953-4e95-bf5a-816c4448c037','notes',2,'00000000-0000-0000-0000-000000000000','{}','{"defaults":{"string":{"fts_index":{"enabled":false,"config":{}},"string_inverted_index":{"enabled":true,"config":{}}},"float_list":{"vector_index":{"enabled":false,"config":{"space":"l2","hnsw":{"ef_construction":100,"max_neighbors":16,"ef_search":100,"num_threads":2,"batch_size":100,"sync_threshold":1000,"resize_factor":1.2}}}},"sparse_vector":{"sparse_vector_index":{"enabled":false,"config":{"embedding_function":{"type":"unknown"},"bm25":false}}},"int":{"int_inverted_index":{"enabled":true,"config":{}}},"float":{"float_inverted_index":{"enabled":true,"config":{}}},"bool":{"bool_inverted_index":{"enabled":true,"config":{}}}},"keys":{"score":{"float":{"float_inverted_index":{"enabled":true,"config":{}}}},"page":{"int":{"int_inverted_index":{"enabled":true,"config":{}}}},"who":{"string":{"fts_index":{"enabled":false,"config":{}},"string_inverted_index":{"enabled":true,"config":{}}}},"#embedding":{"float_list":{"vector_index":{"enabled":true,"config":{"space":"l2","source_key":"#document","hnsw":{"ef_construction":100,"max_neighbors":16,"ef_search":100,"num_threads":2,"batch_size":100,"sync_threshold":1000,"resize_factor":1.2}}}}},"#document":{"string":{"fts_index":{"enabled":true,"config":{}},"string_inverted_index":{"enabled":false,"config":{}}}},"draft":{"bool":{"bool_inverted_index":{"enabled":true,"config":{}}}}}}');
INSERT INTO "collections" VALUES('0b50790f-7c03-4c26-8a1b-4145e2ec4d86','other',2,'00000000-0000-0000-0000-000000000000','{}','{"defaults":{"string":{"fts_index":{"enabled":false,"config":{}},"string_inverted_index":{"enabled":true,"config":{}}},"float_list":{"vector_index":{"enabled":false,"config":{"space":"l2","hnsw":{"ef_construction":100,"max_neighbors":16,"ef_search":100,"num_threads":2,"batch_size":100,"sync_threshold":1000,"resize_factor":1.2}}}},"sparse_vector":{"sparse_vector_index":{"enabled":false,"config":{"embedding_function":{"type":"unknown"},"bm25":false}}},"int":{"int_inverted_index":{"enabled":true,"config":{}}},"float":{"float_inverted_index":{"enabled":true,"config":{}}},"bool":{"bool_inverted_index":{"enabled":true,"config":{}}}},"keys":{"#embedding":{"float_list":{"vector_index":{"enabled":true,"config":{"space":"l2","source_key":"#document","hnsw":{"ef_construction":100,"max_neighbors":16,"ef_search":100,"num_threads":2,"batch_size":100,"sync_threshold":1000,"resize_factor":1.2}}}}},"tags":{"string":{"fts_index":{"enabled":false,"config":{}},"string_inverted_index":{"enabled":true,"config":{}}}},"#document":{"string":{"fts_index":{"enabled":true,"config":{}},"string_inverted_index":{"enabled":false,"config":{}}}}}}');
CREATE TABLE databases (
    id TEXT PRIMARY KEY, -- unique globally
    name TEXT NOT NULL, -- unique per tenant
    tenant_id TEXT NOT NULL REFERENCES tenants(id) ON DELETE CASCADE,
    UNIQUE (tenant_id, name) -- Ensure that a tenant has only one database with a given name
);
INSERT INTO "databases" VALUES('00000000-0000-0000-0000-000000000000','default_database','default_tenant');
CREATE TABLE embedding_metadata (
    id INTEGER REFERENCES embeddings(id),
    key TEXT NOT NULL,
    string_value TEXT,
    int_value INTEGER,
    float_value REAL, bool_value INTEGER,
    PRIMARY KEY (id, key)
);
INSERT INTO "embedding_metadata" VALUES(1,'page',NULL,3,NULL,NULL);
INSERT INTO "embedding_metadata" VALUES(1,'draft',NULL,NULL,NULL,1);
INSERT INTO "embedding_metadata" VALUES(1,'who','Ada',NULL,NULL,NULL);
INSERT INTO "embedding_metadata" VALUES(1,'score',NULL,NULL,0.5,NULL);
INSERT INTO "embedding_metadata" VALUES(1,'chroma:document','The canoe is red',NULL,NULL,NULL);
INSERT INTO "embedding_metadata" VALUES(2,'chroma:document','The violin is new',NULL,NULL,NULL);
INSERT INTO "embedding_metadata" VALUES(2,'page',NULL,44,NULL,NULL);
INSERT INTO "embedding_metadata" VALUES(3,'chroma:document','Third',NULL,NULL,NULL);
INSERT INTO "embedding_metadata" VALUES(3,'page',NULL,5,NULL,NULL);
INSERT INTO "embedding_metadata" VALUES(5,'page',NULL,9,NULL,NULL);
INSERT INTO "embedding_metadata" VALUES(6,'chroma:document','A comet',NULL,NULL,NULL);
INSERT INTO "embedding_metadata" VALUES(7,'chroma:document','With tags',NULL,NULL,NULL);
CREATE TABLE embedding_metadata_array (
    id INTEGER NOT NULL REFERENCES embeddings(id),
    key TEXT NOT NULL,
    string_value TEXT,
    int_value INTEGER,
    float_value REAL,
    bool_value INTEGER
);
INSERT INTO "embedding_metadata_array" VALUES(7,'tags','x',NULL,NULL,NULL);
INSERT INTO "embedding_metadata_array" VALUES(7,'tags','y',NULL,NULL,NULL);
CREATE TABLE embeddings (
    id INTEGER PRIMARY KEY,
    segment_id TEXT NOT NULL,
    embedding_id TEXT NOT NULL,
    seq_id BLOB NOT NULL,
    created_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
    UNIQUE (segment_id, embedding_id)
);
INSERT INTO "embeddings" VALUES(1,'7ac6c69c-9024-4497-a98a-27aa1215bd3c','n1',1,'2026-11-28 06:13:32');
INSERT INTO "embeddings" VALUES(2,'7ac6c69c-9024-4497-a98a-27aa1215bd3c','n2',6,'2026-11-28 06:13:32');
INSERT INTO "embeddings" VALUES(3,'7ac6c69c-9024-4497-a98a-27aa1215bd3c','n3',3,'2026-11-28 06:13:32');
INSERT INTO "embeddings" VALUES(5,'7ac6c69c-9024-4497-a98a-27aa1215bd3c','nodoc',5,'2026-11-28 06:13:32');
INSERT INTO "embeddings" VALUES(6,'49fe8d1f-b20f-421a-8329-be2476f27228','n1',8,'2026-11-28 06:13:32');
INSERT INTO "embeddings" VALUES(7,'49fe8d1f-b20f-421a-8329-be2476f27228','arr',9,'2026-11-28 06:13:32');
CREATE TABLE embeddings_queue (
    seq_id INTEGER PRIMARY KEY,
    created_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
    operation INTEGER NOT NULL,
    topic TEXT NOT NULL,
    id TEXT NOT NULL,
    vector BLOB,
    encoding TEXT,
    metadata TEXT
);
INSERT INTO "embeddings_queue" VALUES(1,'2026-11-28 06:13:32',0,'persistent://default/default/f7d21979-2953-4e95-bf5a-816c4448c037','n1',X'CDCCCC3DCDCC4C3E','FLOAT32','{"page":3,"chroma:document":"The canoe is red","who":"Ada","score":0.5,"draft":true}');
INSERT INTO "embeddings_queue" VALUES(2,'2026-11-28 06:13:32',0,'persistent://default/default/f7d21979-2953-4e95-bf5a-816c4448c037','n2',X'9A99993ECDCCCC3E','FLOAT32','{"chroma:document":"The violin is old","page":4}');
INSERT INTO "embeddings_queue" VALUES(3,'2026-11-28 06:13:32',0,'persistent://default/default/f7d21979-2953-4e95-bf5a-816c4448c037','n3',X'0000003F9A99193F','FLOAT32','{"page":5,"chroma:document":"Third"}');
INSERT INTO "embeddings_queue" VALUES(4,'2026-11-28 06:13:32',0,'persistent://default/default/f7d21979-2953-4e95-bf5a-816c4448c037','n4',X'0000803F0000803F','FLOAT32','{"chroma:document":"Gone","page":6}');
INSERT INTO "embeddings_queue" VALUES(5,'2026-11-28 06:13:32',0,'persistent://default/default/f7d21979-2953-4e95-bf5a-816c4448c037','nodoc',X'CDCCCC3D6666663F','FLOAT32','{"page":9}');
INSERT INTO "embeddings_queue" VALUES(6,'2026-11-28 06:13:32',1,'persistent://default/default/f7d21979-2953-4e95-bf5a-816c4448c037','n2',X'9A99993E0000003F','FLOAT32','{"page":44,"chroma:document":"The violin is new"}');
INSERT INTO "embeddings_queue" VALUES(7,'2026-11-28 06:13:32',3,'persistent://default/default/f7d21979-2953-4e95-bf5a-816c4448c037','n4',NULL,NULL,'{}');
INSERT INTO "embeddings_queue" VALUES(8,'2026-11-28 06:13:32',0,'persistent://default/default/0b50790f-7c03-4c26-8a1b-4145e2ec4d86','n1',X'CDCCCC3DCDCC4C3E','FLOAT32','{"chroma:document":"A comet"}');
INSERT INTO "embeddings_queue" VALUES(9,'2026-11-28 06:13:32',0,'persistent://default/default/0b50790f-7c03-4c26-8a1b-4145e2ec4d86','arr',X'CDCCCC3DCDCC4C3E','FLOAT32','{"tags":["x","y"],"chroma:document":"With tags"}');
CREATE TABLE embeddings_queue_config (
    id INTEGER PRIMARY KEY,
    config_json_str TEXT
);
INSERT INTO "embeddings_queue_config" VALUES(1,'{"automatically_purge":true,"_type":"EmbeddingsQueueConfigurationInternal"}');
CREATE TABLE maintenance_log (
  id INT PRIMARY KEY,
  timestamp INT NOT NULL,
  operation TEXT NOT NULL
);
CREATE TABLE max_seq_id (
    segment_id TEXT PRIMARY KEY,
    seq_id INTEGER);
INSERT INTO "max_seq_id" VALUES('7ac6c69c-9024-4497-a98a-27aa1215bd3c',7);
INSERT INTO "max_seq_id" VALUES('49fe8d1f-b20f-421a-8329-be2476f27228',9);
CREATE TABLE migrations (
                dir TEXT NOT NULL,
                version INTEGER NOT NULL,
                filename TEXT NOT NULL,
                sql TEXT NOT NULL,
                hash TEXT NOT NULL,
                PRIMARY KEY (dir, version)
            );
CREATE TABLE segment_metadata (
    segment_id TEXT  REFERENCES segments(id) ON DELETE CASCADE,
    key TEXT NOT NULL,
    str_value TEXT,
    int_value INTEGER,
    float_value REAL, bool_value INTEGER,
    PRIMARY KEY (segment_id, key)
);
CREATE TABLE "segments" (
    id TEXT PRIMARY KEY,
    type TEXT NOT NULL,
    scope TEXT NOT NULL,
    collection TEXT REFERENCES collection(id) NOT NULL
);
INSERT INTO "segments" VALUES('89096058-8fa6-4f29-8f9d-499bd6d00859','urn:chroma:segment/vector/hnsw-local-persisted','VECTOR','f7d21979-2953-4e95-bf5a-816c4448c037');
INSERT INTO "segments" VALUES('7ac6c69c-9024-4497-a98a-27aa1215bd3c','urn:chroma:segment/metadata/sqlite','METADATA','f7d21979-2953-4e95-bf5a-816c4448c037');
INSERT INTO "segments" VALUES('84a52f14-6204-49cb-8e18-780d9c3530ce','urn:chroma:segment/vector/hnsw-local-persisted','VECTOR','0b50790f-7c03-4c26-8a1b-4145e2ec4d86');
INSERT INTO "segments" VALUES('49fe8d1f-b20f-421a-8329-be2476f27228','urn:chroma:segment/metadata/sqlite','METADATA','0b50790f-7c03-4c26-8a1b-4145e2ec4d86');
CREATE TABLE tenants (
    id TEXT PRIMARY KEY,
    UNIQUE (id)
);
INSERT INTO "tenants" VALUES('default_tenant');
CREATE INDEX embedding_metadata_int_value ON embedding_metadata (key, int_value) WHERE int_value IS NOT NULL;
CREATE INDEX embedding_metadata_float_value ON embedding_metadata (key, float_value) WHERE float_value IS NOT NULL;
CREATE INDEX embedding_metadata_string_value ON embedding_metadata (key, string_value) WHERE string_value IS NOT NULL;
CREATE INDEX embedding_metadata_array_id_key
    ON embedding_metadata_array (id, key);
CREATE INDEX embedding_metadata_array_key_string
    ON embedding_metadata_array (key, string_value) WHERE string_value IS NOT NULL;
CREATE INDEX embedding_metadata_array_key_int
    ON embedding_metadata_array (key, int_value) WHERE int_value IS NOT NULL;
CREATE INDEX embedding_metadata_array_key_float
    ON embedding_metadata_array (key, float_value) WHERE float_value IS NOT NULL;
INSERT INTO migrations VALUES('sysdb',1,'00001-collections.sqlite.sql','','');
INSERT INTO migrations VALUES('sysdb',2,'00002-segments.sqlite.sql','','');
INSERT INTO migrations VALUES('sysdb',3,'00003-collection-dimension.sqlite.sql','','');
INSERT INTO migrations VALUES('sysdb',4,'00004-tenants-databases.sqlite.sql','','');
INSERT INTO migrations VALUES('sysdb',5,'00005-remove-topic.sqlite.sql','','');
INSERT INTO migrations VALUES('sysdb',6,'00006-collection-segment-metadata.sqlite.sql','','');
INSERT INTO migrations VALUES('sysdb',7,'00007-collection-config.sqlite.sql','','');
INSERT INTO migrations VALUES('sysdb',8,'00008-maintenance-log.sqlite.sql','','');
INSERT INTO migrations VALUES('sysdb',9,'00009-segment-collection-not-null.sqlite.sql','','');
INSERT INTO migrations VALUES('sysdb',10,'00010-collection-schema.sqlite.sql','','');
INSERT INTO migrations VALUES('metadb',1,'00001-embedding-metadata.sqlite.sql','','');
INSERT INTO migrations VALUES('metadb',2,'00002-embedding-metadata.sqlite.sql','','');
INSERT INTO migrations VALUES('metadb',3,'00003-full-text-tokenize.sqlite.sql','','');
INSERT INTO migrations VALUES('metadb',4,'00004-metadata-indices.sqlite.sql','','');
INSERT INTO migrations VALUES('metadb',5,'00005-max-seq-id-int.sqlite.sql','','');
INSERT INTO migrations VALUES('metadb',6,'00006-metadata-array-support.sqlite.sql','','');
INSERT INTO migrations VALUES('embeddings_queue',1,'00001-embeddings.sqlite.sql','','');
INSERT INTO migrations VALUES('embeddings_queue',2,'00002-embeddings-queue-config.sqlite.sql','','');
COMMIT;
