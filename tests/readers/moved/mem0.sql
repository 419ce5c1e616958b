BEGIN TRANSACTION;
CREATE TABLE history (
                        id           TEXT PRIMARY KEY,
                        memory_id    TEXT,
                        old_memory   TEXT,
                        new_memory   TEXT,
                        event        TEXT,
                        created_at   DATETIME,
                        updated_at   DATETIME,
                        is_deleted   INTEGER,
                        actor_id     TEXT,
                        role         TEXT
                    );
INSERT INTO "history" VALUES('fb185205-e59e-4803-b42b-00ba05a3f793','11111111-1111-4111-8111-111111111111',NULL,'Likes red canoes','ADD','2026-03-01T10:00:00+00:00',NULL,0,'ada','user');
INSERT INTO "history" VALUES('b160da4d-c0f9-47f6-b159-4e394b6347cf','22222222-2222-4222-8222-222222222222',NULL,'Plays the violin','ADD','2026-03-02T10:00:00+00:00',NULL,0,NULL,NULL);
INSERT INTO "history" VALUES('39ef1a43-bb12-46d7-bb52-da47ee4b7bab','11111111-1111-4111-8111-111111111111','Likes red canoes','Likes blue canoes','UPDATE','2026-03-01T10:00:00+00:00','2026-04-01T10:00:00+00:00',0,'ada','user');
INSERT INTO "history" VALUES('5ffa6aa1-c5c4-46ac-8d6d-d2dec24d65bd','22222222-2222-4222-8222-222222222222','Plays the violin',NULL,'DELETE','2026-03-02T10:00:00+00:00','2026-05-02T10:00:00+00:00',1,NULL,NULL);
CREATE TABLE messages (
                        id TEXT PRIMARY KEY,
                        session_scope TEXT,
                        role TEXT,
                        content TEXT,
                        name TEXT,
                        created_at DATETIME
                    );
INSERT INTO "messages" VALUES('b198be94-9f63-4fe4-b396-e3b778e52a3d','user_id=ada','user','Hello there','ada','2026-11-28T06:09:44.405553+00:00');
INSERT INTO "messages" VALUES('c7a68033-9b89-4aef-b3c6-af84e51c03d1','user_id=ada','assistant','Hi',NULL,'2026-11-28T06:09:44.405553+00:00');
COMMIT;
