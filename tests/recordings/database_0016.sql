BEGIN TRANSACTION;
CREATE TABLE agentjson (
	id INTEGER NOT NULL, 
	created_at BIGINT NOT NULL, 
	updated_at BIGINT NOT NULL, 
	version VARCHAR NOT NULL, 
	user_id VARCHAR NOT NULL, 
	component JSON NOT NULL, tenant VARCHAR DEFAULT 'default' NOT NULL, 
	CONSTRAINT pk_agentjson PRIMARY KEY (id)
);
CREATE TABLE apikey (
	id INTEGER NOT NULL, 
	key_id VARCHAR NOT NULL, 
	digest VARCHAR NOT NULL, 
	tenant VARCHAR NOT NULL, 
	user_id VARCHAR NOT NULL, 
	name VARCHAR, 
	scopes JSON NOT NULL, 
	roles JSON NOT NULL, 
	created_at BIGINT NOT NULL, 
	created_by VARCHAR, 
	expires_at BIGINT, 
	last_used_at BIGINT, 
	revoked_at BIGINT, 
	revoked_by VARCHAR, webhook_url TEXT, 
	CONSTRAINT pk_apikey PRIMARY KEY (id), 
	CONSTRAINT uq_apikey_key_id UNIQUE (key_id), 
	CONSTRAINT uq_apikey_digest UNIQUE (digest)
);
CREATE TABLE auditentry (
	id INTEGER NOT NULL, 
	at BIGINT NOT NULL, 
	tenant VARCHAR, 
	"by" VARCHAR(8) NOT NULL, 
	actor VARCHAR, 
	key_id VARCHAR, 
	acted_by VARCHAR, 
	action VARCHAR(32) NOT NULL, 
	kind VARCHAR(24) NOT NULL, 
	subject VARCHAR NOT NULL, 
	owner VARCHAR, 
	thread_id VARCHAR, 
	detail JSON, 
	request_id VARCHAR, 
	CONSTRAINT pk_auditentry PRIMARY KEY (id)
);
INSERT INTO "auditentry" VALUES(1,1795431797627244,'default','program',NULL,NULL,NULL,'thread.shared','thread','done','ada','done','{"with_user":"bob","with_role":null,"right":"read"}',NULL);
CREATE TABLE autogenmessage (
	id INTEGER NOT NULL, 
	created_at BIGINT NOT NULL, 
	updated_at BIGINT NOT NULL, 
	version VARCHAR NOT NULL, 
	user_id VARCHAR NOT NULL, 
	thread_id VARCHAR NOT NULL, 
	config JSON NOT NULL, 
	message_meta JSON, 
	thread_key INTEGER NOT NULL, 
	seq INTEGER NOT NULL, 
	run_id VARCHAR, shown BOOLEAN, tenant VARCHAR DEFAULT 'default' NOT NULL, 
	CONSTRAINT pk_autogenmessage PRIMARY KEY (id), 
	CONSTRAINT fk_autogenmessage_thread_key_thread FOREIGN KEY(thread_key) REFERENCES thread (id) ON DELETE CASCADE, 
	CONSTRAINT uq_autogenmessage_thread_key_seq UNIQUE (thread_key, seq)
);
INSERT INTO "autogenmessage" VALUES(1,1795431797307834,1795431797307834,'0.0.1','ada','done','{"id":"40e5ec15-d4f3-49cd-af80-d50d450d4f4c","source":"user","models_usage":null,"metadata":{},"created_at":"2026-11-23T11:03:17.317552Z","content":"My name is Ada.","type":"TextMessage"}',NULL,1,1,'run_1m84164hvbnwep8kg1',0,'default');
INSERT INTO "autogenmessage" VALUES(2,1795431797385509,1795431797385509,'0.0.1','ada','done','{"id":"8e447ef5-4b6c-47ec-91c1-2e0438f49b7b","source":"ann","models_usage":{"prompt_tokens":16,"completion_tokens":23},"metadata":{},"created_at":"2026-11-23T11:03:17.380321Z","content":"[offline demo model] Nice to meet you, Ada. I will remember your name in this conversation.","type":"TextMessage"}',NULL,1,2,'run_1m84164hvbnwep8kg1',1,'default');
INSERT INTO "autogenmessage" VALUES(3,1795431797411733,1795431797411733,'0.0.1','ada','done','{"id":"f2c3438e-32de-4f98-b19a-9a7261d1a268","source":"bob","models_usage":{"prompt_tokens":42,"completion_tokens":25},"metadata":{},"created_at":"2026-11-23T11:03:17.410983Z","content":"[offline demo model] I add to what ann said: “My name is Ada.” has another side worth a look.","type":"TextMessage"}',NULL,1,3,'run_1m84164hvbnwep8kg1',1,'default');
INSERT INTO "autogenmessage" VALUES(4,1795431797431824,1795431797431824,'0.0.1','ada','done','{"id":"f5213a62-e78b-426c-9ccc-7d713b8c6e00","source":"user","models_usage":null,"metadata":{},"created_at":"2026-11-23T11:03:17.452838Z","content":"And yours?","type":"TextMessage"}',NULL,1,4,'run_1m84164nqs9qq81zp8',0,'default');
INSERT INTO "autogenmessage" VALUES(5,1795431797485283,1795431797485283,'0.0.1','ada','done','{"id":"faed5665-20ea-4a69-8bd9-e7d7d299a994","source":"ann","models_usage":{"prompt_tokens":76,"completion_tokens":26},"metadata":{},"created_at":"2026-11-23T11:03:17.478144Z","content":"[offline demo model] You said: “And yours?”. That makes 2 messages from you in this conversation.","type":"TextMessage"}',NULL,1,5,'run_1m84164nqs9qq81zp8',1,'default');
INSERT INTO "autogenmessage" VALUES(6,1795431797486563,1795431797486563,'0.0.1','ada','done','{"id":"fd68d151-e348-4f07-94db-7cf2a4148985","source":"bob","models_usage":{"prompt_tokens":105,"completion_tokens":23},"metadata":{},"created_at":"2026-11-23T11:03:17.486095Z","content":"[offline demo model] I add to what ann said: “And yours?” has another side worth a look.","type":"TextMessage"}',NULL,1,6,'run_1m84164nqs9qq81zp8',1,'default');
INSERT INTO "autogenmessage" VALUES(7,1795431797488385,1795431797488385,'0.0.1','ada','waits','{"id":"07645f49-b3fa-4f3f-b092-5824093fff82","source":"user","models_usage":null,"metadata":{},"created_at":"2026-11-23T11:03:17.509318Z","content":"Ask me.","type":"TextMessage"}',NULL,2,1,'run_1m84164qgcpd78qgge',0,'default');
INSERT INTO "autogenmessage" VALUES(8,1795431797511021,1795431797511021,'0.0.1','ada','waits','{"id":"722ecf96-d528-4cfe-a750-3c3d8486e517","source":"ann","models_usage":{"prompt_tokens":40,"completion_tokens":25},"metadata":{},"created_at":"2026-11-23T11:03:17.510600Z","content":"[offline demo model] You said: “Ask me.”. That makes 1 message from you in this conversation.","type":"TextMessage"}',NULL,2,2,'run_1m84164qgcpd78qgge',1,'default');
CREATE TABLE drsai_alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT drsai_alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "drsai_alembic_version" VALUES('0016');
CREATE TABLE journalentry (
	thread_key INTEGER NOT NULL, 
	turn INTEGER NOT NULL, 
	created_at BIGINT NOT NULL, 
	run_id VARCHAR NOT NULL, 
	epoch INTEGER NOT NULL, 
	first_seq INTEGER NOT NULL, 
	last_seq INTEGER NOT NULL, 
	payload TEXT NOT NULL, 
	CONSTRAINT pk_journalentry PRIMARY KEY (thread_key, turn), 
	CONSTRAINT fk_journalentry_thread_key_thread FOREIGN KEY(thread_key) REFERENCES thread (id) ON DELETE CASCADE
)
 WITHOUT ROWID

;
INSERT INTO "journalentry" VALUES(1,1,1795431797385509,'run_1m84164hvbnwep8kg1',1,2,2,'RFMBASSy5PootS/9YIUDxQoA0k8vIUBp3AY7qKKVznOtVuN1gQW++fyS4wpv7tGi2N1RURQXBC5Rf3Y5q9ERUTdQhh6rO04BAEcFwSNRRxB8Hvh3HI03L3ZUFCfVKZpRwSeJOjOmTbqWdDLUJXV2LU4XqREvLekeD/V1r517zZObA9FrTmAX0xDOvoZgGnN0mkg8ZsFpUpInmRVqSXtbs0CMbTYvZoPTXdnbDoZOxWE3eenVJ483Ckbh+GKnB0cCKLXg6hohtHb2tlamC36CuvOEPSAgQoKcIz4kQgIrACYvzN4WKSfU6BOMsBvhZo+KLuZmZXCSKNIJrDlAETcAK0gbYDZhDhiaR4LpgPQfNBWcsSAhu0cR0N9BSQaYNzjHGQRWuAJhuOchaAAc0/9grrdFM2/hc4AOwegKoDcNVlZtXtPVkr3s3WPSFh+FwAPYoIi5gBE0/ikG/WeDi+t6VY3tK514F3Hh1gE=');
INSERT INTO "journalentry" VALUES(1,2,1795431797411733,'run_1m84164hvbnwep8kg1',1,3,3,'RFMBAPZcdFd7InIiOnsic2VxIjozfSwicyI6eyI1IjowfSwieCI6eyIwIjpbM10sIjMiOltbInUiLDFdLFsidSIsMl0sWyJhIiwzXV0sIjQiOlszXX0sInciOnsiMiI6W119fQ==');
INSERT INTO "journalentry" VALUES(1,3,1795431797485283,'run_1m84164nqs9qq81zp8',2,5,5,'RFMBALDKyWF7InIiOnsic2VxIjo1LCJwZW5kaW5nIjpbImJvYiJdfSwicyI6eyI1IjoxfSwieCI6eyIxIjpbWyJ1IiwzXSxbInUiLDRdLFsiYSIsNV1dLCIyIjpbNCw1XSwiNCI6WzQsNV19LCJ3Ijp7IjAiOltdfX0=');
INSERT INTO "journalentry" VALUES(1,4,1795431797486563,'run_1m84164nqs9qq81zp8',2,6,6,'RFMBADUtJB97InIiOnsic2VxIjo2fSwicyI6eyI1IjowfSwieCI6eyIwIjpbNl0sIjMiOltbInUiLDRdLFsidSIsNV0sWyJhIiw2XV0sIjQiOls2XX0sInciOnsiMiI6W119fQ==');
INSERT INTO "journalentry" VALUES(2,1,1795431797511021,'run_1m84164qgcpd78qgge',1,2,2,'RFMBASGfFzIotS/9YBwD7QoAdpAyIVBp1AYjFUorO5pioxAN+3H7HTYsLkz4MuhMR/kYMzO1BikAKgAoAK3sYGhkHFSRmdZ08PejcBSQL948+BFAmAVXzwihs7GVdT7Z4CeoN08IbAV0JRii0cYQyRjAeDP6bS4WLcHcNC2Kg8wJtZStTMFAz6PYvJgNm7owfMvxFUWdnycVuC3ldKhL2ehiNhuYETMtpf4Qdd3Wu03x23RQcSBqAauoO7oazeiXqBskQ41zfxPAb0kOUdST5I7IvSG/483r+S1Lg7mMDjogIEKDGKQeJ4ZUTAHQSwpE88Y6Z8oyu5HM6dGqxZms3HkSRT4hbRzAnFKGoeoEmMNgDXDMA4iGVDNIyu5RxOo7IBpgvsGjM74VDtwTvk6HLOw2vcbmMGVVKgA/B8gQeArjJthSEFwoB/PKiEyyMFPSlhqFwINtUMZcYARN/hQF/bPBj+t2Vd32cSfeIi7cOg==');
CREATE TABLE plancheck (
	id INTEGER NOT NULL, 
	created_at BIGINT NOT NULL, 
	updated_at BIGINT NOT NULL, 
	version VARCHAR NOT NULL, 
	user_id VARCHAR NOT NULL, 
	thread_id VARCHAR NOT NULL, 
	task TEXT, 
	steps JSON, 
	session_id VARCHAR, tenant VARCHAR DEFAULT 'default' NOT NULL, 
	CONSTRAINT pk_plancheck PRIMARY KEY (id)
);
CREATE TABLE queuedinput (
	id INTEGER NOT NULL, 
	created_at BIGINT NOT NULL, 
	thread_key INTEGER NOT NULL, 
	run_id VARCHAR NOT NULL, 
	policy VARCHAR(12) NOT NULL, 
	request JSON NOT NULL, 
	api_key TEXT, on_question VARCHAR(12) DEFAULT 'wait' NOT NULL, 
	CONSTRAINT pk_queuedinput PRIMARY KEY (id), 
	CONSTRAINT fk_queuedinput_thread_key_thread FOREIGN KEY(thread_key) REFERENCES thread (id) ON DELETE CASCADE, 
	CONSTRAINT uq_queuedinput_run_id UNIQUE (run_id)
);
CREATE TABLE run (
	id INTEGER NOT NULL, 
	created_at BIGINT NOT NULL, 
	version VARCHAR NOT NULL, 
	run_id VARCHAR NOT NULL, 
	thread_key INTEGER NOT NULL, 
	team VARCHAR NOT NULL, 
	attempt INTEGER NOT NULL, 
	idempotency_key VARCHAR, 
	fingerprint VARCHAR, 
	answers JSON, 
	first_seq INTEGER NOT NULL, 
	started_at BIGINT NOT NULL, 
	status VARCHAR(16) NOT NULL, 
	updated_at BIGINT NOT NULL, 
	finished_at BIGINT, 
	last_seq INTEGER NOT NULL, 
	usage JSON, 
	stop_reason TEXT, 
	error_message TEXT, epoch INTEGER DEFAULT '0' NOT NULL, retries INTEGER DEFAULT '0' NOT NULL, retry_turn INTEGER, background BOOLEAN DEFAULT 0 NOT NULL, joined VARCHAR, deadline BIGINT, turns INTEGER DEFAULT '0' NOT NULL, seconds FLOAT DEFAULT '0' NOT NULL, limits JSON, stop_code VARCHAR, request_id VARCHAR, usage_before JSON, told JSON, principal JSON, waits_in VARCHAR, waits_for VARCHAR, finish JSON, point BLOB, 
	CONSTRAINT pk_run PRIMARY KEY (id), 
	CONSTRAINT fk_run_thread_key_thread FOREIGN KEY(thread_key) REFERENCES thread (id) ON DELETE CASCADE, 
	CONSTRAINT uq_run_run_id UNIQUE (run_id)
);
INSERT INTO "run" VALUES(1,1795431797307834,'0.0.1','run_1m84164hvbnwep8kg1',1,'crew',1,NULL,NULL,NULL,1,1795431797307834,'completed',1795431797411733,1795431797411733,3,'{"prompt_tokens":58,"completion_tokens":48,"total_tokens":106}','Maximum number of turns 2 reached.',NULL,1,0,NULL,0,NULL,NULL,2,0.035,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,X'BE52C3EE40D7D00545C3D41E8D485908');
INSERT INTO "run" VALUES(2,1795431797431824,'0.0.1','run_1m84164nqs9qq81zp8',1,'crew',1,NULL,NULL,NULL,4,1795431797431824,'completed',1795431797486563,1795431797486563,6,'{"prompt_tokens":181,"completion_tokens":49,"total_tokens":230}','Maximum number of turns 2 reached.',NULL,2,0,NULL,0,NULL,NULL,2,0.031,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,X'5A1A74C21FFE2B9A866396CC8689ECFF');
INSERT INTO "run" VALUES(3,1795431797488385,'0.0.1','run_1m84164qgcpd78qgge',2,'asking',1,NULL,NULL,NULL,1,1795431797488385,'awaiting_input',1795431797615658,NULL,2,'{"prompt_tokens":40,"completion_tokens":25,"total_tokens":65}',NULL,NULL,1,0,NULL,0,NULL,NULL,1,0.105,NULL,NULL,NULL,NULL,NULL,NULL,'default','user:ada',NULL,X'199E36B00CD8EBA5E711A3898CFC6A83');
CREATE TABLE runwebhook (
	id INTEGER NOT NULL, 
	thread_key INTEGER NOT NULL, 
	run_id VARCHAR NOT NULL, 
	tenant VARCHAR NOT NULL, 
	user_id VARCHAR NOT NULL, 
	subscriber VARCHAR NOT NULL, 
	kind VARCHAR(12) NOT NULL, 
	url TEXT NOT NULL, 
	endpoint VARCHAR NOT NULL, 
	CONSTRAINT pk_runwebhook PRIMARY KEY (id), 
	CONSTRAINT fk_runwebhook_thread_key_thread FOREIGN KEY(thread_key) REFERENCES thread (id) ON DELETE CASCADE, 
	CONSTRAINT uq_runwebhook_run_id UNIQUE (run_id)
);
CREATE TABLE "singletask" (
	id INTEGER NOT NULL, 
	created_at BIGINT NOT NULL, 
	updated_at BIGINT NOT NULL, 
	version VARCHAR NOT NULL, 
	user_id VARCHAR NOT NULL, 
	thread_id VARCHAR NOT NULL, 
	task_id VARCHAR NOT NULL, 
	is_node_task BOOLEAN NOT NULL, 
	node_task_id VARCHAR, 
	previous_id VARCHAR, 
	next_id VARCHAR, 
	content TEXT, 
	files JSON, 
	task_messages JSON, 
	meta JSON, 
	tenant VARCHAR DEFAULT 'default' NOT NULL, 
	CONSTRAINT pk_singletask PRIMARY KEY (id), 
	CONSTRAINT uq_singletask_user_id_tenant_thread_id_task_id UNIQUE (user_id, tenant, thread_id, task_id)
);
CREATE TABLE "tasks" (
	id INTEGER NOT NULL, 
	created_at BIGINT NOT NULL, 
	updated_at BIGINT NOT NULL, 
	version VARCHAR NOT NULL, 
	user_id VARCHAR NOT NULL, 
	thread_id VARCHAR NOT NULL, 
	tasks_id VARCHAR NOT NULL, 
	content TEXT, 
	files JSON, 
	tasks JSON, 
	meta JSON, 
	tenant VARCHAR DEFAULT 'default' NOT NULL, 
	CONSTRAINT pk_tasks PRIMARY KEY (id), 
	CONSTRAINT uq_tasks_user_id_tenant_thread_id_tasks_id UNIQUE (user_id, tenant, thread_id, tasks_id)
);
CREATE TABLE "thread" (
	id INTEGER NOT NULL, 
	created_at BIGINT NOT NULL, 
	version VARCHAR NOT NULL, 
	user_id VARCHAR NOT NULL, 
	thread_id VARCHAR NOT NULL, 
	team VARCHAR, 
	title VARCHAR, 
	user_input JSON, 
	messages JSON, 
	tasks JSON, 
	team_result JSON, 
	state TEXT, 
	meta JSON, 
	error_message TEXT, 
	input_request JSON, 
	status VARCHAR(16) NOT NULL, 
	updated_at BIGINT NOT NULL, 
	revision INTEGER NOT NULL, 
	run_id VARCHAR, 
	epoch INTEGER NOT NULL, 
	last_seq INTEGER NOT NULL, 
	turn INTEGER NOT NULL, 
	journal_debt INTEGER NOT NULL, 
	lease_owner VARCHAR, 
	lease_expires_at BIGINT, 
	control VARCHAR(8), 
	queued INTEGER DEFAULT '0' NOT NULL, 
	tenant VARCHAR DEFAULT 'default' NOT NULL, branch INTEGER, forked_from JSON, 
	CONSTRAINT pk_thread PRIMARY KEY (id), 
	CONSTRAINT uq_thread_user_id_tenant_thread_id UNIQUE (user_id, tenant, thread_id)
);
INSERT INTO "thread" VALUES(1,1795431797307834,'0.0.1','ada','done','crew','My name is Ada.',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'completed',1795431797486563,4,'run_1m84164nqs9qq81zp8',2,6,4,920,NULL,NULL,NULL,0,'default',NULL,NULL);
INSERT INTO "thread" VALUES(2,1795431797488385,'0.0.1','ada','waits','asking','Ask me.',NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{"id":"a9473615-e8fa-4371-a930-9ce740d183f6","type":"text_input","kind":"agent","source":"person","prompt":"Enter your response: ","choices":null,"asked_at":"2026-11-23T11:03:17.615431+00:00","deadline":null,"tool":null}','awaiting_input',1795431797615658,2,'run_1m84164qgcpd78qgge',1,2,1,492,NULL,NULL,NULL,0,'default',NULL,NULL);
CREATE TABLE threadbranch (
	thread_key INTEGER NOT NULL, 
	number INTEGER NOT NULL, 
	parent INTEGER, 
	at_turn INTEGER NOT NULL, 
	at_seq INTEGER NOT NULL, 
	first_turn INTEGER NOT NULL, 
	first_seq INTEGER NOT NULL, 
	created_at BIGINT NOT NULL, 
	CONSTRAINT pk_threadbranch PRIMARY KEY (thread_key, number), 
	CONSTRAINT fk_threadbranch_thread_key_thread FOREIGN KEY(thread_key) REFERENCES thread (id) ON DELETE CASCADE
)
 WITHOUT ROWID

;
CREATE TABLE threadfield (
	thread_key INTEGER NOT NULL, 
	name VARCHAR NOT NULL, 
	value JSON NOT NULL, 
	CONSTRAINT pk_threadfield PRIMARY KEY (thread_key, name), 
	CONSTRAINT fk_threadfield_thread_key_thread FOREIGN KEY(thread_key) REFERENCES thread (id) ON DELETE CASCADE
)
 WITHOUT ROWID

;
CREATE TABLE threadshare (
	id INTEGER NOT NULL, 
	thread_key INTEGER NOT NULL, 
	tenant VARCHAR NOT NULL, 
	with_user VARCHAR, 
	with_role VARCHAR, 
	"right" VARCHAR(8) NOT NULL, 
	created_at BIGINT NOT NULL, 
	created_by VARCHAR NOT NULL, 
	CONSTRAINT pk_threadshare PRIMARY KEY (id), 
	CONSTRAINT ck_threadshare_one_grantee CHECK ((with_user IS NULL) <> (with_role IS NULL)), 
	CONSTRAINT fk_threadshare_thread_key_thread FOREIGN KEY(thread_key) REFERENCES thread (id) ON DELETE CASCADE, 
	CONSTRAINT uq_threadshare_thread_key_with_user UNIQUE (thread_key, with_user), 
	CONSTRAINT uq_threadshare_thread_key_with_role UNIQUE (thread_key, with_role)
);
INSERT INTO "threadshare" VALUES(1,1,'default','bob',NULL,'read',1795431797626309,'ada');
CREATE TABLE "threadsnapshot" (
	thread_key INTEGER NOT NULL, 
	turn INTEGER NOT NULL, 
	payload TEXT NOT NULL, 
	CONSTRAINT pk_threadsnapshot PRIMARY KEY (thread_key, turn), 
	CONSTRAINT fk_threadsnapshot_thread_key_thread FOREIGN KEY(thread_key) REFERENCES thread (id) ON DELETE CASCADE
);
CREATE TABLE turnstep (
	thread_key INTEGER NOT NULL, 
	agent VARCHAR NOT NULL, 
	step VARCHAR NOT NULL, 
	created_at BIGINT NOT NULL, 
	run_id VARCHAR NOT NULL, 
	turn INTEGER NOT NULL, 
	epoch INTEGER NOT NULL, 
	digest VARCHAR NOT NULL, 
	value JSON NOT NULL, 
	CONSTRAINT pk_turnstep PRIMARY KEY (thread_key, agent, step), 
	CONSTRAINT fk_turnstep_thread_key_thread FOREIGN KEY(thread_key) REFERENCES thread (id) ON DELETE CASCADE
)
 WITHOUT ROWID

;
CREATE TABLE "userinput" (
	id INTEGER NOT NULL, 
	created_at BIGINT NOT NULL, 
	updated_at BIGINT NOT NULL, 
	version VARCHAR NOT NULL, 
	user_id VARCHAR NOT NULL, 
	thread_id VARCHAR NOT NULL, 
	user_messages JSON, 
	user_last_message TEXT, 
	api_key TEXT, 
	temperature FLOAT, 
	max_tokens INTEGER, 
	top_p FLOAT, 
	cache_seed BIGINT, 
	n INTEGER, 
	stream BOOLEAN, 
	extra_requests JSON, 
	tenant VARCHAR DEFAULT 'default' NOT NULL, 
	CONSTRAINT pk_userinput PRIMARY KEY (id), 
	CONSTRAINT uq_userinput_user_id_tenant_thread_id UNIQUE (user_id, tenant, thread_id)
);
INSERT INTO "userinput" VALUES(1,1795431797307834,1795431797431824,'0.0.1','ada','done','[]','And yours?',NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,'default');
INSERT INTO "userinput" VALUES(2,1795431797488385,1795431797488385,'0.0.1','ada','waits','[]','Ask me.',NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,'default');
CREATE TABLE webhookdelivery (
	id INTEGER NOT NULL, 
	event_id VARCHAR NOT NULL, 
	created_at BIGINT NOT NULL, 
	thread_key INTEGER NOT NULL, 
	run_id VARCHAR NOT NULL, 
	tenant VARCHAR NOT NULL, 
	user_id VARCHAR NOT NULL, 
	subscriber VARCHAR NOT NULL, 
	kind VARCHAR(12) NOT NULL, 
	type VARCHAR(32) NOT NULL, 
	url TEXT NOT NULL, 
	endpoint VARCHAR NOT NULL, 
	attempts INTEGER DEFAULT '0' NOT NULL, 
	next_at BIGINT, 
	claim VARCHAR, 
	delivered_at BIGINT, 
	status_code INTEGER, 
	error TEXT, 
	CONSTRAINT pk_webhookdelivery PRIMARY KEY (id), 
	CONSTRAINT fk_webhookdelivery_thread_key_thread FOREIGN KEY(thread_key) REFERENCES thread (id) ON DELETE CASCADE, 
	CONSTRAINT uq_webhookdelivery_event_id UNIQUE (event_id)
);
CREATE TABLE webhooksecret (
	id INTEGER NOT NULL, 
	tenant VARCHAR NOT NULL, 
	user_id VARCHAR NOT NULL, 
	created_at BIGINT NOT NULL, 
	secret TEXT NOT NULL, 
	previous_secret TEXT, 
	previous_until BIGINT, 
	CONSTRAINT pk_webhooksecret PRIMARY KEY (id), 
	CONSTRAINT uq_webhooksecret_tenant_user_id UNIQUE (tenant, user_id)
);
CREATE INDEX ix_run_thread_key ON run (thread_key);
CREATE INDEX ix_run_live ON run (thread_key) WHERE status = 'running';
CREATE UNIQUE INDEX uq_run_idempotency ON run (thread_key, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX ix_run_deadline ON run (deadline) WHERE deadline IS NOT NULL;
CREATE INDEX ix_queuedinput_thread_key ON queuedinput (thread_key);
CREATE INDEX ix_run_waiting ON run (thread_key) WHERE status IN ('created', 'paused', 'awaiting_input');
CREATE INDEX ix_plancheck_user_id_tenant_thread_id ON plancheck (user_id, tenant, thread_id);
CREATE INDEX ix_agentjson_user_id_tenant ON agentjson (user_id, tenant);
CREATE INDEX ix_apikey_tenant_user_id ON apikey (tenant, user_id);
CREATE INDEX ix_auditentry_tenant_id ON auditentry (tenant, id);
CREATE INDEX ix_auditentry_at ON auditentry (at);
CREATE TRIGGER auditentry_append_only BEFORE UPDATE ON auditentry BEGIN SELECT RAISE(ABORT, 'rows of the audit log are never changed'); END;
CREATE INDEX ix_threadshare_tenant_with_user ON threadshare (tenant, with_user);
CREATE INDEX ix_threadshare_tenant_with_role ON threadshare (tenant, with_role);
CREATE INDEX ix_run_waits_for ON run (waits_in, waits_for) WHERE status = 'awaiting_input';
CREATE VIEW drsai_threads AS
SELECT t.id AS thread_key, t.tenant, t.user_id AS "user", t.thread_id AS thread, t.title, t.team, t.status,
    t.last_seq AS messages, t.queued, t.run_id AS run, t.error_message AS error, CASE t.status WHEN 'awaiting_input' THEN json_extract(t.input_request, '$.prompt') END AS question,
    strftime('%Y-%m-%d %H:%M:%S', t.created_at / 1000000, 'unixepoch') || printf('.%06d', t.created_at % 1000000) AS created_at, strftime('%Y-%m-%d %H:%M:%S', t.updated_at / 1000000, 'unixepoch') || printf('.%06d', t.updated_at % 1000000) AS updated_at
FROM thread t;
CREATE VIEW drsai_runs AS
SELECT t.id AS thread_key, t.tenant, t.user_id AS "user", t.thread_id AS thread, r.run_id AS run, r.team, r.status,
    r.attempt, r.turns, r.stop_reason, r.error_message AS error,
    CASE json_type(r.usage, '$.prompt_tokens') WHEN 'integer' THEN json_extract(r.usage, '$.prompt_tokens') END AS prompt_tokens, CASE json_type(r.usage, '$.completion_tokens') WHEN 'integer' THEN json_extract(r.usage, '$.completion_tokens') END AS completion_tokens, CASE json_type(r.usage, '$.total_tokens') WHEN 'integer' THEN json_extract(r.usage, '$.total_tokens') END AS total_tokens,
    r.first_seq, r.last_seq, strftime('%Y-%m-%d %H:%M:%S', r.created_at / 1000000, 'unixepoch') || printf('.%06d', r.created_at % 1000000) AS created_at, strftime('%Y-%m-%d %H:%M:%S', r.started_at / 1000000, 'unixepoch') || printf('.%06d', r.started_at % 1000000) AS started_at, strftime('%Y-%m-%d %H:%M:%S', r.finished_at / 1000000, 'unixepoch') || printf('.%06d', r.finished_at % 1000000) AS finished_at,
    (r.finished_at - r.started_at) / 1000000.0 AS seconds
FROM run r JOIN thread t ON t.id = r.thread_key;
CREATE VIEW drsai_messages AS
SELECT t.id AS thread_key, t.tenant, t.user_id AS "user", t.thread_id AS thread, m.run_id AS run,
    COALESCE(r.team, t.team) AS team, m.seq, CASE json_type(m.config, '$.source') WHEN 'text' THEN json_extract(m.config, '$.source') END AS source, CASE json_type(m.config, '$.type') WHEN 'text' THEN json_extract(m.config, '$.type') END AS type, CASE json_type(m.config, '$.content') WHEN 'text' THEN json_extract(m.config, '$.content') WHEN 'array' THEN (SELECT group_concat(part.value, char(10)) FROM (SELECT value, type FROM json_each(m.config, '$.content') ORDER BY key) part WHERE part.type = 'text') END AS text,
    CASE json_type(m.config, '$.models_usage.prompt_tokens') WHEN 'integer' THEN json_extract(m.config, '$.models_usage.prompt_tokens') END AS prompt_tokens, CASE json_type(m.config, '$.models_usage.completion_tokens') WHEN 'integer' THEN json_extract(m.config, '$.models_usage.completion_tokens') END AS completion_tokens, strftime('%Y-%m-%d %H:%M:%S', m.created_at / 1000000, 'unixepoch') || printf('.%06d', m.created_at % 1000000) AS "time"
FROM autogenmessage m JOIN thread t ON t.id = m.thread_key LEFT JOIN run r ON r.run_id = m.run_id;
CREATE VIEW drsai_storage AS
SELECT t.id AS thread_key, t.tenant, t.user_id AS "user", t.thread_id AS thread, (SELECT COALESCE(SUM(COALESCE(length(CAST(p.config AS BLOB)), 0) + COALESCE(length(CAST(p.message_meta AS BLOB)), 0)), 0) FROM autogenmessage p WHERE p.thread_key = t.id) AS messages_bytes,
    (SELECT COALESCE(SUM(COALESCE(length(CAST(p.payload AS BLOB)), 0)), 0) FROM threadsnapshot p WHERE p.thread_key = t.id) + (SELECT COALESCE(SUM(COALESCE(length(CAST(p.payload AS BLOB)), 0)), 0) FROM journalentry p WHERE p.thread_key = t.id) AS state_bytes, (SELECT COALESCE(SUM(COALESCE(length(CAST(p.value AS BLOB)), 0)), 0) FROM threadfield p WHERE p.thread_key = t.id) + (SELECT COALESCE(SUM(COALESCE(length(CAST(p.user_messages AS BLOB)), 0) + COALESCE(length(CAST(p.user_last_message AS BLOB)), 0) + COALESCE(length(CAST(p.extra_requests AS BLOB)), 0)), 0) FROM userinput p WHERE p.tenant = t.tenant AND p.user_id = t.user_id AND p.thread_id = t.thread_id) + (SELECT COALESCE(SUM(COALESCE(length(CAST(p.request AS BLOB)), 0)), 0) FROM queuedinput p WHERE p.thread_key = t.id) + (SELECT COALESCE(SUM(COALESCE(length(CAST(p.value AS BLOB)), 0)), 0) FROM turnstep p WHERE p.thread_key = t.id) AS other_bytes
FROM thread t;
CREATE INDEX ix_run_point ON run (point) WHERE point IS NOT NULL;
CREATE INDEX ix_runwebhook_thread_key ON runwebhook (thread_key);
CREATE INDEX ix_runwebhook_tenant_user_id ON runwebhook (tenant, user_id);
CREATE INDEX ix_webhookdelivery_thread_key ON webhookdelivery (thread_key);
CREATE INDEX ix_webhookdelivery_tenant_user_id ON webhookdelivery (tenant, user_id);
CREATE INDEX ix_webhookdelivery_due ON webhookdelivery (next_at) WHERE next_at IS NOT NULL;
CREATE INDEX ix_webhookdelivery_pending ON webhookdelivery (tenant, user_id) WHERE next_at IS NOT NULL;
CREATE INDEX ix_webhookdelivery_over ON webhookdelivery (created_at) WHERE next_at IS NULL;
COMMIT;
