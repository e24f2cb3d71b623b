# hymt_translate_trigger(…, 'async'): the writer does not wait; the column is filled after commit, if the text is still that
# one and nobody wrote there meanwhile; with the rights of the table's owner and no others.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use HymtTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = hymt_node('async', conf => "hymt.job_attempts = 2\n");
my $files = 0;

sub new_file
{
	return $node->basedir . '/release_' . ++$files;
}

sub sql
{
	return $node->safe_psql('postgres', join "\n", @_);
}

# In a session of hers, who is no superuser in any guise.
sub mallory
{
	return $node->safe_psql('postgres', $_[0], extra_params => [ '-U', 'mallory' ]);
}

# Runs statements and returns their SQLSTATE.
sub error_of
{
	my ($code, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\n$_[0]");

	return $err =~ /ERROR:  (\w{5}):/ ? $1 : "none: $err";
}

sub row_becomes
{
	my ($table, $id, $expected, $name) = @_;

	return ok(wait_until($node, "SELECT title_en FROM $table WHERE id = $id", $expected), $name);
}

# No job is under way.
sub wait_for_rest
{
	return ok(wait_until($node, "SELECT count(*) FROM hymt_job WHERE state IN ('queued', 'running')", '0'), 'all jobs have ended');
}

sub last_job
{
	my ($columns) = @_;

	return sql("SELECT $columns FROM hymt_job ORDER BY id DESC LIMIT 1");
}

sub new_table
{
	my ($name, $columns, $arguments) = @_;

	$arguments //= '';
	sql("CREATE TABLE $name (" . ($columns // 'id int PRIMARY KEY, title text, title_en text, price int') . ')',
		"; CREATE TRIGGER tr AFTER INSERT OR UPDATE ON $name FOR EACH ROW"
		  . " EXECUTE FUNCTION hymt_translate_trigger('title', 'title_en', 'zh', 'en'$arguments, 'async')");
	return;
}

new_table('products');

scenario 'the writer does not wait' => sub {
	my $file = new_file();

	sql("INSERT INTO products VALUES (1, 'mock:hold $file', NULL), (2, 'two', NULL), (3, 'three', 'by hand'), (4, NULL, NULL), (5, '42', NULL)");
	is(sql('SELECT title_en IS NULL FROM products WHERE id = 1'), 't', 'the column is empty at first');
	row_becomes('products', 2, 'zh>en: two', 'and filled');
	row_becomes('products', 5, '42', 'also with what needs no model');
	is(sql('SELECT count(*) FROM hymt_job'), '3', 'there are jobs for rows without a translation');
	append_to_file($file, '');
	row_becomes('products', 1, 'released', 'each in its time');
	is(sql('SELECT title_en FROM products WHERE id = 3'), 'by hand', 'what was given by hand stays');
	wait_for_rest();
	is(sql('SELECT count(*) FROM hymt_job'), '3', 'its own write leaves no job');
	is(last_job('state, owner, translation IS NULL, rel'), sql("SELECT 'done', current_user, true, 'products'"),
		"a job is the table owner's, and the translation in the table");
};

scenario 'updates' => sub {
	sql("UPDATE products SET title = 'deux' WHERE id = 2");
	row_becomes('products', 2, 'zh>en: deux', 'another text');
	sql('UPDATE products SET price = 1');
	sql('UPDATE products SET title = title');
	sql("UPDATE products SET title = 'drei', title_en = 'three' WHERE id = 3");
	is(sql("SELECT count(*) FROM hymt_job WHERE state IN ('queued', 'running')"), '0', 'none where nothing is to be done');
	sql('UPDATE products SET title = NULL WHERE id = 2');
	row_becomes('products', 2, '', 'to null');
	wait_for_rest();

	# Of several that follow one another the last counts.
	my $file = new_file();
	sql("UPDATE products SET title = 'mock:hold $file' WHERE id = 1");
	sql("UPDATE products SET title = 'second' WHERE id = 1");
	sql("UPDATE products SET title = 'third' WHERE id = 1");
	row_becomes('products', 1, 'zh>en: third', 'the last one');
	append_to_file($file, '');
	wait_for_rest();
	is(sql('SELECT title_en FROM products WHERE id = 1'), 'zh>en: third', 'stays, though an older one ends later');
	is(sql("SELECT count(*) FROM hymt_job WHERE state = 'cancelled' AND message = 'the row has changed'") > 0, 1, 'which is cancelled');

	sql("BEGIN; UPDATE products SET title = 'never' WHERE id = 1; ROLLBACK");
	is(sql("SELECT count(*) FROM hymt_job WHERE source = 'never'"), '0', 'none of a transaction that is rolled back');
};

scenario 'what happens meanwhile' => sub {
	my $file = new_file();
	my $text = "mock:hold $file";

	sql("INSERT INTO products SELECT i, '$text' || E'\\n' || i FROM generate_series(11, 14) AS i");
	ok(wait_until($node, "SELECT count(*) FROM hymt_job WHERE state = 'running'", '4'), 'the engine works');
	sql("UPDATE products SET title_en = 'by hand' WHERE id = 11; DELETE FROM products WHERE id = 12; UPDATE products SET id = 113 WHERE id = 13");
	append_to_file($file, '');
	row_becomes('products', 14, 'released', 'a row that nobody touched');
	wait_for_rest();
	is(sql('SELECT title_en FROM products WHERE id = 11'), 'by hand', 'a translation by hand stays');
	is(sql("SELECT count(*) FROM hymt_job WHERE state = 'cancelled' AND source LIKE '$text%'"), '3', 'other jobs end quietly');

	new_table('gone');
	new_table('emptied');
	new_table('untriggered');
	$file = new_file();
	sql("INSERT INTO $_ VALUES (1, 'mock:hold $file')") for ('gone', 'emptied', 'untriggered');
	ok(wait_until($node, "SELECT count(*) FROM hymt_job WHERE state = 'running'", '3'), 'the engine works');
	sql('DROP TABLE gone; TRUNCATE emptied; DROP TRIGGER tr ON untriggered');
	append_to_file($file, '');
	wait_for_rest();
	is(sql("SELECT count(*) FROM hymt_job WHERE state = 'cancelled' AND source LIKE 'mock:hold $file'"), '3', 'DROP, TRUNCATE, DROP TRIGGER');
	is(sql('SELECT title_en IS NULL FROM untriggered'), 't', 'nothing is written without the trigger');
};

scenario 'locks and failures cost one job' => sub {
	my $session = background($node, "BEGIN; UPDATE products SET price = 7 WHERE id = 21; SELECT pg_sleep(3); COMMIT");
	sql("INSERT INTO products VALUES (22, 'beside')");
	row_becomes('products', 22, 'zh>en: beside', 'beside');
	finish($session);

	my $file = new_file();
	sql("INSERT INTO products VALUES (23, 'mock:hold $file')");
	ok(wait_until($node, "SELECT count(*) FROM hymt_job WHERE state = 'running'", '1'), 'the engine works');
	$session = background($node, "BEGIN; UPDATE products SET price = 7 WHERE id = 23; SELECT pg_sleep(4); COMMIT");
	ok(wait_until($node, "SELECT count(*) FROM pg_stat_activity WHERE application_name = '$session->{name}' AND wait_event = 'PgSleep'", '1'),
		'the row is locked');
	append_to_file($file, '');
	sql("INSERT INTO products VALUES (24, 'not kept waiting')");
	row_becomes('products', 24, 'zh>en: not kept waiting', 'others are not kept waiting');
	is(sql("SELECT state FROM pg_stat_activity WHERE application_name = '$session->{name}'"), 'active', 'while it is locked');
	finish($session);
	row_becomes('products', 23, 'released', 'later it is filled');
	is(sql("SELECT attempts FROM hymt_job WHERE source = 'mock:hold $file'"), '1', 'a lock costs no attempt');

	$session = background($node, 'BEGIN; LOCK TABLE products IN SHARE MODE; SELECT pg_sleep(3); COMMIT');
	new_table('strict', "id int PRIMARY KEY, title text, title_en varchar(20) CHECK (title_en <> 'zh>en: bad')");
	sql("INSERT INTO strict VALUES (1, 'bad'), (2, 'good'), (3, 'much longer than that')");
	row_becomes('strict', 2, 'zh>en: good', 'one that can be written');
	ok(wait_until($node, "SELECT state, attempts, sqlstate FROM hymt_job WHERE source = 'bad'", 'dead|2|23514'), 'a constraint');
	ok(wait_until($node, "SELECT state, attempts, sqlstate FROM hymt_job WHERE source LIKE 'much%'", 'dead|2|22001'), 'a length');
	finish($session);
	wait_for_rest();
};

scenario 'on_error' => sub {
	new_table('lenient', undef, ", 'source'");
	sql("INSERT INTO lenient VALUES (1, 'mock:fail too-long')");
	row_becomes('lenient', 1, 'mock:fail too-long', 'source');
	sql("INSERT INTO products VALUES (31, 'mock:fail too-long')");
	wait_for_rest();
	is(last_job('state, sqlstate'), 'failed|54000', 'error: the job says it');
	is(sql('SELECT title_en IS NULL FROM products WHERE id = 31'), 't', 'and the column stays');
};

scenario 'keys of all kinds' => sub {
	sql('CREATE DOMAIN code AS text CHECK (VALUE <> \'\')');
	new_table('many', 'a code, b timestamptz, "C d" float8, e uuid DEFAULT gen_random_uuid(), f bpchar(5), title text, title_en text,'
		  . ' PRIMARY KEY (a, b, "C d", e, f)');
	sql(qq{SET DateStyle = 'SQL, DMY'; SET TimeZone = 'Asia/Tokyo'; SET extra_float_digits = 0;
		INSERT INTO many VALUES ('a''"\\', '2026-02-03 04:05:06.789', 0.1::float8 + 0.2::float8, DEFAULT, 'x', 'first', NULL),
			('b', 'infinity', 'NaN', DEFAULT, 'y', 'second', NULL)});
	ok(wait_until($node, q{SELECT string_agg(title_en, ',' ORDER BY a) FROM many}, 'zh>en: first,zh>en: second'), 'found again');
	sql('CREATE TABLE keyed (id int NOT NULL, title text, title_en text)',
		'; CREATE UNIQUE INDEX keyed_id ON keyed (id); ALTER TABLE keyed REPLICA IDENTITY USING INDEX keyed_id',
		"; CREATE TRIGGER tr AFTER INSERT ON keyed FOR EACH ROW EXECUTE FUNCTION hymt_translate_trigger('title', 'title_en', 'zh', 'en', 'async')",
		"; INSERT INTO keyed VALUES (1, 'identity')");
	row_becomes('keyed', 1, 'zh>en: identity', 'by replica identity');
	sql('CREATE TABLE parts (id int, title text, title_en text, PRIMARY KEY (id)) PARTITION BY RANGE (id)',
		'; CREATE TABLE part_1 PARTITION OF parts FOR VALUES FROM (1) TO (10); CREATE TABLE part_2 PARTITION OF parts FOR VALUES FROM (10) TO (20)',
		"; CREATE TRIGGER tr AFTER INSERT OR UPDATE ON parts FOR EACH ROW EXECUTE FUNCTION hymt_translate_trigger('title', 'title_en', 'zh', 'en', 'async')",
		"; INSERT INTO parts VALUES (1, 'part'), (11, 'other part')");
	row_becomes('parts', 1, 'zh>en: part', 'partitions');
	row_becomes('parts', 11, 'zh>en: other part', 'all of them');
};

scenario 'what cannot be' => sub {
	sql('CREATE TABLE keyless (title text, title_en text)',
		"; CREATE TRIGGER tr AFTER INSERT ON keyless FOR EACH ROW EXECUTE FUNCTION hymt_translate_trigger('title', 'title_en', 'zh', 'en', 'async')");
	is(error_of("INSERT INTO keyless VALUES ('a')"), '55000', 'no key');
	is(error_of("CREATE TEMP TABLE t (id int PRIMARY KEY, title text, title_en text);"
			  . " CREATE TRIGGER tr AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION hymt_translate_trigger('title', 'title_en', 'zh', 'en', 'async');"
			  . " INSERT INTO t VALUES (1, 'a')"), '42809', 'a temporary table');
	my $create = 'CREATE TABLE wrong (id int PRIMARY KEY, title text, title_en text); CREATE TRIGGER tr %s ON wrong FOR EACH %s'
	  . " EXECUTE FUNCTION hymt_translate_trigger(%s); INSERT INTO wrong VALUES (1, 'a')";
	foreach my $case (
		[ 'BEFORE INSERT', 'ROW', "'title', 'title_en', 'zh', 'en', 'async'", '39P01' ],
		[ 'AFTER INSERT', 'ROW', "'title', 'title_en', 'zh', 'en'", '39P01' ],
		[ 'AFTER INSERT', 'STATEMENT', "'title', 'title_en', 'zh', 'en', 'async'", '39P01' ],
		[ 'AFTER INSERT', 'ROW', "'title', 'title_en', 'zh', 'en', 'null', 'more', 'async'", '09000' ],
		[ 'AFTER INSERT', 'ROW', "'title', 'title_en', 'zh', 'xx', 'async'", '22023' ],
		[ 'AFTER INSERT', 'ROW', "'title', 'title_fr', 'zh', 'en', 'async'", '42703' ])
	{
		is(error_of('BEGIN;' . sprintf($create, @{$case}[ 0 .. 2 ]) . '; ROLLBACK'), $case->[3], "@{$case}[0, 1]: $case->[2]");
	}
};

# Everything that runs when the worker writes has its owner's rights, and leaves nothing behind.
scenario 'a hostile owner' => sub {
	sql(<<'END');
CREATE ROLE mallory LOGIN;
CREATE SCHEMA lair AUTHORIZATION mallory;
GRANT EXECUTE ON FUNCTION hymt_translate_trigger() TO mallory;
CREATE TABLE secret (who text);
INSERT INTO secret VALUES ('nobody');
END
	mallory(<<'END');
SET search_path = lair, public;
CREATE TABLE log (at text, who text, session text, path text);
CREATE FUNCTION note(at text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO lair.log VALUES (at, current_user, session_user, current_setting('search_path'));
	BEGIN
		EXECUTE 'ALTER ROLE mallory SUPERUSER';
		INSERT INTO lair.log VALUES (at || ' rose', current_user);
	EXCEPTION WHEN OTHERS THEN NULL;
	END;
	BEGIN
		EXECUTE 'UPDATE public.secret SET who = ''mallory''';
		INSERT INTO lair.log VALUES (at || ' wrote', current_user);
	EXCEPTION WHEN OTHERS THEN NULL;
	END;
	BEGIN
		EXECUTE 'RESET ROLE';
		INSERT INTO lair.log VALUES (at || ' reset', current_user);
	EXCEPTION WHEN OTHERS THEN NULL;
	END;
	BEGIN
		EXECUTE 'RESET SESSION AUTHORIZATION';
		INSERT INTO lair.log VALUES (at || ' reset', current_user);
	EXCEPTION WHEN OTHERS THEN NULL;
	END;
	PERFORM set_config('search_path', 'lair, pg_catalog', false);
	PERFORM pg_advisory_lock(4711);
	RETURN true;
END$$;
CREATE FUNCTION fire() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM lair.note(TG_NAME);
	RETURN NEW;
END$$;
CREATE FUNCTION indexed(text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	PERFORM lair.note('index');
	RETURN $1;
END$$;
CREATE DOMAIN checked AS text CHECK (VALUE IS NULL OR lair.note('domain'));
CREATE TABLE trap (id int PRIMARY KEY, title text, title_en checked);
CREATE INDEX ON trap (indexed(title_en::text));
CREATE TRIGGER tr AFTER INSERT ON trap FOR EACH ROW EXECUTE FUNCTION hymt_translate_trigger('title', 'title_en', 'zh', 'en', 'async');
CREATE TRIGGER before BEFORE UPDATE ON trap FOR EACH ROW EXECUTE FUNCTION fire();
CREATE CONSTRAINT TRIGGER deferred AFTER UPDATE ON trap DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION fire();
CREATE FUNCTION clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS $$
BEGIN
	PERFORM lair.note('search_path');
	RETURN now();
END$$;
INSERT INTO trap VALUES (1, 'bait');
END
	row_becomes('lair.trap', 1, 'zh>en: bait', 'the column is filled');
	wait_for_rest();
	is(sql("SELECT string_agg(at, ',') FROM lair.log WHERE path = 'pg_catalog, pg_temp'"), 'domain', 'the search_path is fixed, but for her own');
	is( sql("SELECT string_agg(DISTINCT at, ',') FROM lair.log WHERE path LIKE '%pg_catalog%'"),
		'before,deferred,domain,index',
		'triggers, deferred ones too, an index and a domain were run');
	is(sql("SELECT DISTINCT who FROM lair.log"), 'mallory', "with the owner's rights");
	is(sql("SELECT count(*) FROM lair.log WHERE at LIKE '% rose' OR at LIKE '% wrote' OR at = 'search_path'"), '0', 'and nothing was gained');
	is(sql("SELECT rolsuper FROM pg_roles WHERE rolname = 'mallory'"), 'f', 'no superuser');
	is(sql('SELECT who FROM secret'), 'nobody', 'nothing written');
	is(sql("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"), '0', 'no lock left');
	sql("INSERT INTO products VALUES (41, 'after it')");
	row_becomes('products', 41, 'zh>en: after it', 'the next job is made as ever');

	# One that is deferred within.
	mallory(<<'END');
CREATE FUNCTION lair.defer() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	SET CONSTRAINTS ALL DEFERRED;
	RETURN NEW;
END$$;
CREATE TRIGGER aaa BEFORE UPDATE ON lair.trap FOR EACH ROW EXECUTE FUNCTION lair.defer();
TRUNCATE lair.log;
INSERT INTO lair.trap VALUES (2, 'second bait');
END
	wait_for_rest();
	is(sql("SELECT count(*) FROM lair.log WHERE who <> 'mallory' OR at LIKE '% rose' OR at LIKE '% wrote'"), '0', 'nothing runs at commit with other rights');

	# Sleeping.
	mallory(<<'END');
DROP TRIGGER aaa ON lair.trap;
CREATE FUNCTION lair.sleep() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_sleep(3600);
	RETURN NEW;
END$$;
CREATE TRIGGER aaa BEFORE UPDATE ON lair.trap FOR EACH ROW EXECUTE FUNCTION lair.sleep();
INSERT INTO lair.trap VALUES (3, 'third bait');
END
	ok(wait_until($node, "SELECT state, sqlstate FROM hymt_job WHERE source = 'third bait'", 'dead|57014'), 'who sleeps is woken');
	mallory('DROP TRIGGER aaa ON lair.trap');

	# Rights are looked at again.
	my $file = new_file();
	mallory("INSERT INTO lair.trap VALUES (4, 'mock:hold $file')");
	ok(wait_until($node, "SELECT state FROM hymt_job WHERE source = 'mock:hold $file'", 'running'), 'the engine works');
	sql('REVOKE EXECUTE ON FUNCTION hymt_translate_trigger() FROM mallory');
	append_to_file($file, '');
	wait_for_rest();
	is(sql("SELECT state, sqlstate FROM hymt_job WHERE source = 'mock:hold $file'"), 'dead|42501', 'revoked');
	is(sql('SELECT title_en IS NULL FROM lair.trap WHERE id = 4'), 't', 'nothing is written');
	is(mallory("SELECT count(*) > 0, bool_and(owner = 'mallory'::regrole) FROM hymt_job"), 't|t', 'jobs are the owner\'s to see');
};

# To be cancelled is an error that she may catch.
scenario 'an owner who does not end' => sub {
	sql('GRANT EXECUTE ON FUNCTION hymt_translate_trigger() TO mallory');
	mallory(<<'END');
CREATE TABLE lair.glue (id int PRIMARY KEY, title text, title_en text);
CREATE FUNCTION lair.stick() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_sleep(600);
	RETURN NEW;
EXCEPTION WHEN query_canceled THEN
	PERFORM pg_sleep(600);
	RETURN NEW;
END$$;
CREATE TRIGGER tr AFTER INSERT ON lair.glue FOR EACH ROW
	EXECUTE FUNCTION public.hymt_translate_trigger('title', 'title_en', 'zh', 'en', 'async');
CREATE TRIGGER stick BEFORE UPDATE ON lair.glue FOR EACH ROW EXECUTE FUNCTION lair.stick();
INSERT INTO lair.glue VALUES (1, 'glue');
END
	ok(wait_until($node, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'", '1'), 'the worker is in her trigger');
	sql("INSERT INTO products VALUES (44, 'after her')");
	row_becomes('products', 44, 'zh>en: after her', 'others have their turn');
	sql('DROP TABLE lair.glue');
};

scenario 'the writer' => sub {
	sql('CREATE ROLE writer; GRANT INSERT ON products TO writer');
	sql("SET ROLE writer; INSERT INTO products VALUES (51, 'by a writer')");
	row_becomes('products', 51, 'zh>en: by a writer', 'needs nothing but the right to insert');
	is(sql('SET ROLE writer; SELECT count(*) FROM hymt_job'), '0', 'and sees nothing of the job');
};

scenario 'a restart in between' => sub {
	my $file = new_file();

	sql("INSERT INTO products VALUES (61, 'mock:hold $file')");
	ok(wait_until($node, "SELECT state FROM hymt_job WHERE source = 'mock:hold $file'", 'running'), 'the engine works');
	$node->stop('immediate');
	$node->start;
	append_to_file($file, '');
	row_becomes('products', 61, 'released', 'the column is filled all the same');
};

$node->stop;
done_testing();
