# Translations by people where more than a session takes part: standby servers, dumps, logical replication, parallel
# workers, sessions that set the same, and servers whose engine is down or that have not preloaded hymt.
use strict;
use warnings;

use HymtTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = hymt_node('human', init => [ allows_streaming => 'logical' ], conf => "hot_standby_feedback = on\n");

# Texts like #1# have nothing to translate: without a translation by a person they come back as they are, with no engine.
sub get
{
	my ($where, $text, $database) = @_;

	return $where->safe_psql($database // 'postgres', "SELECT hymt_translate('$text', 'zh', 'en')");
}

sub set
{
	my ($where, $text, $translation, $database) = @_;

	return $where->safe_psql($database // 'postgres', "SELECT hymt_set_translation('$text', 'zh', 'en', '$translation')");
}

sub remove
{
	my ($where, $text, $database) = @_;

	return $where->safe_psql($database // 'postgres', "SELECT hymt_unset_translation('$text', 'zh', 'en')");
}

# A session that waits inside one transaction until a text has a translation by a person, and tells it; each look has a
# snapshot of its own unless the isolation says otherwise.
sub watching_session
{
	my ($where, $text) = @_;
	my $session = background($where, <<"END");
SET client_min_messages = error;
DO \$\$ BEGIN
  WHILE hymt_translate('$text', 'zh', 'en') = '$text' LOOP
    PERFORM pg_sleep(0.01);
  END LOOP;
END \$\$;
SELECT hymt_translate('$text', 'zh', 'en');
END
	ok( wait_until(
			$where,
			"SELECT wait_event FROM pg_stat_activity WHERE application_name = '$session->{name}' AND query LIKE 'DO%'",
			'PgSleep'), 'a session has found nothing yet');
	return $session;
}

sub scans_of_index
{
	$node->safe_psql('postgres', 'SELECT pg_stat_force_next_flush()');
	return $node->safe_psql('postgres',
		"SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname = 'hymt_human_translation_key'");
}

scenario 'where nobody sets any, nothing is looked for' => sub {
	my $many = "SELECT count(*) FROM generate_series(1, 1000) AS i WHERE hymt_translate('#' || i, 'zh', 'en') = '#' || i";
	my $before = scans_of_index();

	is($node->safe_psql('postgres', $many), '1000', 'texts stay as they are');
	is(scans_of_index(), $before, 'the index was not scanned');
	set($node, '#7', 'seven');
	$before = scans_of_index();
	is($node->safe_psql('postgres', $many), '999', 'but one of them');
	is(scans_of_index(), $before + 1000, 'now it was');
	is(remove($node, '#7'), 't', 'gone again');
	$node->safe_psql('postgres', 'VACUUM hymt_human_translation');
	$before = scans_of_index();
	is($node->safe_psql('postgres', $many), '1000', 'all as they are');
	is(scans_of_index(), $before, 'and the index is left in peace again');
};

scenario 'on a standby' => sub {
	$node->backup('copy');
	my $standby = PostgreSQL::Test::Cluster->new('human_standby');
	$standby->init_from_backup($node, 'copy', has_streaming => 1);
	$standby->start;
	watch($standby);
	is(get($standby, '#1#'), '#1#', 'nobody has set one');
	my $here = watching_session($node, '#1#');
	my $there = watching_session($standby, '#1#');
	my $old = background($standby, <<'END');
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT hymt_translate('#1#', 'zh', 'en');
DO $$ BEGIN
  WHILE NOT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'all is replayed') LOOP
    PERFORM pg_stat_clear_snapshot(), pg_sleep(0.01);
  END LOOP;
END $$;
SELECT hymt_translate('#1#', 'zh', 'en');
COMMIT;
SELECT hymt_translate('#1#', 'zh', 'en');
END
	ok(wait_until($standby,
			"SELECT count(*) FROM pg_stat_activity WHERE application_name = '$old->{name}' AND wait_event = 'PgSleep'", '1'),
		'and a transaction with a snapshot that stays');
	set($node, '#1#', 'one');
	is(finish($here)->{out}, 'one', 'sessions of the primary see it within their transactions');
	is(finish($there)->{out}, 'one', 'those of the standby as well');
	$node->wait_for_catchup($standby);
	my $sign = background($standby, "SET application_name = 'all is replayed'; SELECT pg_sleep(60);");
	is(finish($old)->{out}, "#1#\n#1#\none", 'a snapshot that is older does not') or diag($old->{err});
	$standby->psql('postgres', "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'all is replayed'");
	finish($sign);
	is(get($standby, '#1#'), 'one', 'new sessions see it');
	my ($code, $out, $error) = $standby->psql('postgres', "SELECT hymt_set_translation('#1#', 'zh', 'en', 'two')");
	like($error, qr/cannot execute hymt_set_translation\(\) in a read-only transaction/, 'none can be set there');

	is(remove($node, '#1#'), 't', 'it is removed');
	$node->safe_psql('postgres', 'VACUUM hymt_human_translation');
	$node->wait_for_catchup($standby);
	is(get($standby, '#1#'), '#1#', 'also on the standby');
	my $last = watching_session($standby, '#2#');
	$standby->promote;
	set($standby, '#2#', 'set after promotion');
	is(finish($last)->{out}, 'set after promotion', 'a session that lived through the promotion sees what was set after it');
	$standby->stop;
};

scenario 'dumped and restored' => sub {
	set($node, '#1#', 'one');
	$node->safe_psql('postgres', <<'END');
SET client_encoding = 'UTF8';
SELECT hymt_set_translation(U&'Stra\00DFe', 'de', 'en', 'road'), hymt_set_translation(U&'Stra\00DFe', 'de', 'fr', U&'chauss\00E9e'),
  hymt_set_translation(repeat('#', 50000), 'zh', 'en', 'long');
END
	my $file = $node->basedir . '/human.dump';
	my $latin = "ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0";
	my $rows = 'SELECT id, source_lang, target_lang, md5(text), translation, set_by, set_at FROM hymt_human_translation ORDER BY id';
	$node->command_ok([ 'pg_dump', '-Fc', '-f', $file, $node->connstr('postgres') ], 'dumped');

	$node->safe_psql('postgres', 'CREATE DATABASE restored');
	$node->command_ok([ 'pg_restore', '-d', $node->connstr('restored'), $file ], 'restored');
	is($node->safe_psql('restored', $rows), $node->safe_psql('postgres', $rows), 'all of them are there, with who set them and when');
	is(get($node, '#1#', 'restored'), 'one', 'and used');

	# Another encoding, and a database that has its own.
	$node->safe_psql('postgres', "CREATE DATABASE latin $latin");
	$node->safe_psql('latin', 'CREATE EXTENSION hymt');
	set($node, '#1#', 'newer one', 'latin');
	set($node, '#2#', 'two', 'latin');
	$node->command_ok([ 'pg_restore', '--data-only', '-d', $node->connstr('latin'), $file ], 'restored into another one');
	is(get($node, '#1#', 'latin'), 'newer one', 'the newest counts');
	is(get($node, '#2#', 'latin'), 'two', 'what was there stays');
	is(get($node, '#' x 50000, 'latin'), 'long', 'what was not there came');
	is($node->safe_psql('latin',
			q{SET client_encoding = 'UTF8'; SELECT hymt_translate('Stra' || chr(223) || 'e', l, t) FROM (VALUES ('de', 'en'), ('de', 'fr')) AS v (l, t)}),
		"road\nchauss\xc3\xa9e", 'texts are found in another encoding')
		or diag($node->safe_psql('latin', 'TABLE hymt_human_translation'));
	is(set($node, '#1#', 'newest one', 'latin') . get($node, '#1#', 'latin'), 'newest one', 'and can be set anew');
	is($node->safe_psql('latin', q{SELECT count(*) FROM hymt_human_translation WHERE text = '#1#'}), '1', 'once');

	my ($plain) = run_command([ 'pg_dump', '--schema-only', $node->connstr('restored') ]);
	unlike($plain, qr/COPY|chauss/, 'a dump of the schema has none');
	$node->safe_psql('postgres', "DROP DATABASE $_") foreach qw(restored latin);
	unlink $file;
};

scenario 'in parallel workers' => sub {
	$node->safe_psql('postgres', q{CREATE TABLE titles AS SELECT '#' || i || '#' AS title FROM generate_series(1, 1000) AS i});
	my $query = q{SELECT count(*) FROM titles WHERE hymt_translate(title, 'zh', 'en') IN ('one', 'nine hundred')};
	my $parallel = <<'END';
SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;
SET max_parallel_workers_per_gather = 2; SET parallel_leader_participation = off;
END
	set($node, '#1#', 'one');
	like($node->safe_psql('postgres', "$parallel EXPLAIN (COSTS OFF) $query"), qr/Workers Planned/, 'a parallel plan');
	is($node->safe_psql('postgres', "$parallel $query"), '1', 'workers find it');
	is($node->safe_psql('postgres', <<"END"), "\n2\n\n2", 'and what their transaction has set and not committed');
$parallel BEGIN;
SELECT hymt_set_translation('#900#', 'zh', 'en', 'nine hundred');
$query;
SELECT hymt_set_translation('#900#', 'zh', 'en', 'nine hundred');
$query;
ROLLBACK;
END
	is($node->safe_psql('postgres', "$parallel $query"), '1', 'but nothing that was rolled back');
	$node->safe_psql('postgres', 'DROP TABLE titles');
};

scenario 'sessions that set the same' => sub {
	my @sessions = map { background($node, <<"END") } 1 .. 4;
DO \$\$ BEGIN
  FOR i IN 1 .. 300 LOOP
    PERFORM hymt_set_translation('#same ' || i % 3, 'zh', 'en', '$_ ' || i);
    COMMIT;
    IF i % 7 = 0 THEN
      PERFORM hymt_unset_translation('#same ' || i % 3, 'zh', 'en');
      COMMIT;
    END IF;
  END LOOP;
  PERFORM hymt_set_translation('#same 0', 'zh', 'en', '$_');
END \$\$;
END
	is(join('', map { finish($_)->{err} } @sessions), '', 'no session had an error');
	is($node->safe_psql('postgres', q{SELECT count(*) FROM hymt_human_translations WHERE text = '#same 0'}), '1', 'one is there');
	like(get($node, '#same 0'), qr/^[1-4]$/, 'one of them');
	set($node, '#same 0', 'last');
	is(get($node, '#same 0'), 'last', 'the last one wins');
	is($node->safe_psql('postgres', q{SELECT count(*) FROM hymt_human_translation WHERE text = '#same 0'}), '1', 'and is alone');
};

scenario 'whatever the cache holds' => sub {
	my $details = "SET hymt.cache = on; SELECT translation, status, cached FROM hymt_translate_details('cart', 'zh', 'en')";

	is($node->safe_psql('postgres', $details), 'zh>en: cart|translated|f', 'the model is asked');
	is($node->safe_psql('postgres', $details), 'zh>en: cart|translated|t', 'once');
	set($node, 'cart', 'by hand');
	is($node->safe_psql('postgres', $details), 'by hand|human|f', 'a translation by a person is not overlooked for that');
	remove($node, 'cart');
	is($node->safe_psql('postgres', $details), 'zh>en: cart|translated|t', 'and does not take its place');
};

scenario 'prepared transactions and crashes' => sub {
	$node->append_conf('postgresql.conf', 'max_prepared_transactions = 2');
	$node->restart;
	my $session = watching_session($node, '#3#');
	$node->safe_psql('postgres',
		q{BEGIN; SELECT hymt_set_translation('#3#', 'zh', 'en', 'yes'); PREPARE TRANSACTION 'human';});
	is(get($node, '#3#'), '#3#', 'not before the second phase');
	$node->safe_psql('postgres', q{COMMIT PREPARED 'human'});
	is(finish($session)->{out}, 'yes', 'then at once');
	$node->stop('immediate');
	$node->start;
	is(get($node, '#3#'), 'yes', 'and after a crash');
};

# Both have one for the same text: no key is violated, the newest counts on both sides.
scenario 'logical replication' => sub {
	my $other = hymt_node('human_subscriber');
	my $all = q{SELECT string_agg(translation, ', ' ORDER BY set_at) FROM hymt_human_translation WHERE text = '#both#'};

	set($node, '#both#', 'published');
	set($other, '#both#', 'own');
	$node->safe_psql('postgres', 'CREATE PUBLICATION everything FOR ALL TABLES');
	$other->safe_psql('postgres', "CREATE SUBSCRIPTION everything CONNECTION '" . $node->connstr . " dbname=postgres' PUBLICATION everything");
	$other->wait_for_subscription_sync($node, 'everything');
	is(get($other, '#both#'), 'own', 'the newer one counts after the first copy');
	is(get($other, '#1#'), 'one', 'others came');
	my $session = watching_session($other, '#4#');
	set($node, '#both#', 'published anew');
	set($node, '#4#', 'late');
	$node->wait_for_catchup('everything');
	is(get($other, '#both#'), 'published anew', 'the newer one counts when it comes later');
	is(finish($session)->{out}, 'late', 'sessions see what comes within their transactions');
	is($other->safe_psql('postgres', $all), 'own, published anew', 'both are there');
	set($other, '#both#', 'own anew');
	is($other->safe_psql('postgres', $all), 'own anew', 'setting one removes all');
	set($node, '#both#', 'published at last');
	set($node, '#5#', 'came');
	$node->wait_for_catchup('everything');
	is(get($other, '#both#'), 'published at last', 'also when what it replaces is not there any more');
	is(remove($node, '#both#'), 't', 'removed on one side');
	$node->wait_for_catchup('everything');
	is(get($other, '#both#'), 'own anew', 'that of the other side is left');
	is($other->safe_psql('postgres', 'SELECT apply_error_count, sync_error_count FROM pg_stat_subscription_stats'), '0|0',
		'and there was no error');
	$other->safe_psql('postgres', 'DROP SUBSCRIPTION everything');
	$other->stop;
	$node->safe_psql('postgres', 'DROP PUBLICATION everything');
};

scenario 'with no engine' => sub {
	set($node, 'lorry', 'by hand');
	use_model($node, 'mock-refuse broken');
	wait_for_status($node, "state = 'refused'");
	my ($code, $out, $error) = $node->psql('postgres', translate('bicycle'));
	isnt($code, 0, 'the model translates nothing');
	is(get($node, 'lorry'), 'by hand', 'what a person has translated is there');
	is($node->safe_psql('postgres', q{SELECT hymt_translate(ARRAY['lorry', '#1#', NULL], 'zh', 'en')}),
		'{"by hand",one,NULL}', 'in arrays as well');
	set($node, 'bicycle', 'also by hand');
	is(get($node, 'bicycle'), 'also by hand', 'and more can be set');
	use_model($node, 'mock-plain');
	wait_for_status($node, "state = 'ready'");
	is(get($node, 'bicycle'), 'also by hand', 'which stays so with another model');
	remove($node, 'bicycle');
	is(get($node, 'bicycle'), 'zh>en: bicycle', 'until it is removed');
};

scenario 'not preloaded' => sub {
	my $bare = PostgreSQL::Test::Cluster->new('human_bare');

	$bare->init;
	$bare->start;
	$bare->safe_psql('postgres', 'CREATE EXTENSION hymt');
	set($bare, 'lorry', 'by hand');
	is(get($bare, 'lorry'), 'by hand', 'translations by people need no engine');
	my ($code, $out, $error) = $bare->psql('postgres', translate('bicycle'));
	like($error, qr/hymt must be loaded when the server starts/, 'others do');
	$bare->stop;
};

done_testing();
