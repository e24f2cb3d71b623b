# A server that has hymt preloaded and in use is upgraded to a new one that has it, too: by pg_upgrade, and by dump and
# restore. From the version of PostgreSQL that the other tests run on, and, where HYMT_OLD_BINDIR names the programs of
# an older one for which hymt is installed (say /usr/lib/postgresql/15/bin), from that.
use strict;
use warnings;

use File::Basename qw(dirname);
use HymtTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

# What users may have built on hymt. `clerk` is somebody with grants and settings of his own.
my $objects = <<'END';
GRANT USAGE ON SCHEMA public TO clerk;
GRANT EXECUTE ON FUNCTION hymt_translate(text, text, text, text, text, text, text, jsonb) TO clerk;
GRANT EXECUTE ON FUNCTION hymt_status() TO clerk;
GRANT SELECT ON hymt_status TO clerk;
CREATE TABLE titles (id int PRIMARY KEY, title text DEFAULT 'untitled', title_en text,
  number text DEFAULT hymt_translate('42', 'zh', 'en'), remark text CHECK (hymt_translate('7', 'en', 'zh') = '7'));
CREATE TRIGGER translate_title BEFORE INSERT OR UPDATE ON titles FOR EACH ROW
  EXECUTE FUNCTION hymt_translate_trigger('title', 'title_en', 'zh', 'en');
INSERT INTO titles SELECT i, 'title ' || i FROM generate_series(1, 20) AS i;
CREATE FUNCTION english(text) RETURNS text STABLE
BEGIN ATOMIC
  SELECT hymt_translate($1, 'zh', 'en');
END;
CREATE VIEW both_ways AS SELECT id, title, hymt_translate(title, 'zh', 'de') AS title_de FROM titles;
CREATE VIEW devices AS SELECT state, english(state) AS state_en FROM hymt_status;
CREATE MATERIALIZED VIEW shown AS SELECT count(*), max(english(title)) AS last FROM titles WHERE id >= 20;
END

# One line about each object of the extension with its privileges, first ones (with which pg_dump compares) and present
# ones but those of clerk. A table that only its owner may use has these privileges or none after an upgrade, which is the
# same.
my $members = <<'END';
SELECT string_agg(line, E'\n' ORDER BY line COLLATE "C")
FROM (SELECT concat_ws(' | ',
    pg_describe_object(d.classid, d.objid, 0),
    CASE WHEN p.oid IS NOT NULL THEN pg_get_functiondef(p.oid) END,
    CASE WHEN c.relkind = 'v' THEN pg_get_viewdef(c.oid) END,
    (SELECT string_agg(a::text, ',' ORDER BY a::text) FROM unnest(coalesce(p.proacl, c.relacl, acldefault('r', c.relowner))) AS a
      WHERE a::text NOT LIKE 'clerk=%'),
    'initially ' || (SELECT string_agg(a::text, ',' ORDER BY a::text)
      FROM unnest(coalesce(i.initprivs, acldefault('r', c.relowner))) AS a),
    obj_description(d.objid, d.classid::regclass::name)) AS line
  FROM pg_depend d
  JOIN pg_extension e ON e.oid = d.refobjid AND d.refclassid = 'pg_extension'::regclass AND e.extname = 'hymt'
  LEFT JOIN pg_proc p ON d.classid = 'pg_proc'::regclass AND p.oid = d.objid
  LEFT JOIN pg_class c ON d.classid = 'pg_class'::regclass AND c.oid = d.objid
  LEFT JOIN pg_init_privs i ON i.classoid = d.classid AND i.objoid = d.objid
  WHERE d.deptype = 'e') AS lines
END

# The old server: database postgres with the present version of the extension, database former with the first one.
sub old_server
{
	my ($name, $install) = @_;
	# Some versions have checksums unless told otherwise, some only when told.
	my $old = hymt_node("old_$name", init => [ extra => ['--data-checksums'] ], install_path => $install);

	$old->safe_psql('postgres', <<'END');
CREATE ROLE clerk;
ALTER ROLE clerk SET hymt.queue_timeout = '54s';
CREATE DATABASE former;
ALTER DATABASE postgres SET hymt.queue_timeout = '55s';
END
	$old->safe_psql('former', "CREATE EXTENSION hymt VERSION '0.1.0'");
	$old->safe_psql($_, $objects) foreach 'postgres', 'former';
	$old->safe_psql('postgres', "SELECT hymt_set_translation('held', 'zh', 'en', 'by hand')");
	return $old;
}

# Runs pg_upgrade; the new server is not started. Returns it and the folder with pg_upgrade's scripts.
sub upgrade
{
	my ($old, $name, $old_bin) = @_;
	my $new = PostgreSQL::Test::Cluster->new("new_$name");
	my $directory = PostgreSQL::Test::Utils::tempdir();
	my $new_bin = `pg_config --bindir`;
	my $log = '';
	my $since = time;

	chomp $new_bin;
	$new->init(extra => ['--data-checksums']);
	# The same settings, hymt.model and shared_preload_libraries among them.
	$new->append_conf('postgresql.conf',
		join "\n", grep { /^(shared_preload|hymt\.)/ } split /\n/, slurp_file($old->data_dir . '/postgresql.conf'));
	chdir $directory or die "$directory: $!";
	my $run = IPC::Run::start(
		[
			'pg_upgrade', '--no-sync', '--retain', '-b', $old_bin // $new_bin, '-B', $new_bin,
			'-d', $old->data_dir, '-D', $new->data_dir, '-p', $old->port, '-P', $new->port, '-s', $new->host
		],
		'<', File::Spec->devnull, '>&', \$log, IPC::Run::timeout(300));
	ok($run->finish, sprintf('pg_upgrade: %.1f s', time - $since)) or diag($log);
	return ($new, $directory);
}

# pg_upgrade's servers have nobody to translate for.
sub ran_no_engine
{
	my ($new) = @_;
	my @files = glob $new->data_dir . '/pg_upgrade_output.d/*/log/*';
	my @lines = grep { /hymt: / } map { split /\n/, slurp_file($_) } @files;

	ok(scalar(@files), 'pg_upgrade has left its logs');
	is(join("\n", @lines), '', 'no worker and no engine has run meanwhile');
}

sub uses_work
{
	my ($new, $database, $name) = @_;
	my $is = sub {
		my ($sql, $expected, $what) = @_;

		is($new->safe_psql($database, $sql), $expected, "$name: $what");
	};

	$is->(translate('hello'), 'zh>en: hello', 'translates');
	$is->('SELECT count(*), max(title_en) FROM titles', '20|zh>en: title 9', 'the rows are there');
	$is->("INSERT INTO titles (id, title) VALUES (30, 'written') RETURNING title_en, number",
		'zh>en: written|42', 'a trigger, a default and a constraint');
	$is->('INSERT INTO titles (id) VALUES (31) RETURNING title_en', 'zh>en: untitled', 'another default');
	$is->('SELECT title_de FROM both_ways WHERE id = 30', 'zh>de: written', 'a view');
	$is->('SELECT state, state_en FROM devices', 'ready|zh>en: ready', 'a view of a view and a function');
	$is->('SELECT count, last FROM shown', '1|zh>en: title 20', 'a materialized view is as it was');
	$is->('REFRESH MATERIALIZED VIEW shown; SELECT count, last FROM shown', '3|zh>en: written', 'and can be refreshed');
	$is->('SET ROLE clerk; ' . translate('granted') . '; SELECT state FROM hymt_status',
		"zh>en: granted\nready", 'grants are kept');
	is(($new->psql($database, 'SET ROLE clerk; SELECT * FROM hymt_stat'))[0], 3, "$name: and are no more than they were");
	$is->('DELETE FROM titles WHERE id >= 30; REFRESH MATERIALIZED VIEW shown', '', 'rows can be deleted');
}

sub check_upgrade
{
	my ($name, $old_bin) = @_;
	my $old = old_server($name, defined $old_bin ? dirname($old_bin) : undef);
	my $version = $old->safe_psql('postgres', 'SHOW server_version');

	note("from PostgreSQL $version");
	my $dump = $old->basedir . '/former.sql';
	command_ok([ 'pg_dump', '-d', $old->connstr('former'), '-f', $dump ], 'a dump');
	$old->stop;
	my ($new, $directory) = upgrade($old, $name, $old_bin);
	ran_no_engine($new);
	$new->start;
	watch($new);
	$new->safe_psql('postgres', 'CREATE DATABASE fresh');
	$new->safe_psql('fresh', 'CREATE EXTENSION hymt');

	is( $new->safe_psql('postgres', 'SELECT setconfig FROM pg_db_role_setting ORDER BY 1'),
		"{hymt.queue_timeout=54s}\n{hymt.queue_timeout=55s}", 'settings of roles and databases are kept');
	is($new->safe_psql('postgres', 'SHOW hymt.queue_timeout'), '55s', 'and are in force');
	uses_work($new, 'postgres', 'the present version');
	is($new->safe_psql('postgres', translate('held')), 'by hand', 'what a person has translated is kept');
	is($new->safe_psql('former', "SELECT extversion FROM pg_extension WHERE extname = 'hymt'"),
		'0.1.0', 'the extension is of the version that it was');
	uses_work($new, 'former', 'a former version');

	$new->command_ok(
		[
			'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', $new->connstr('postgres'),
			'-f', "$directory/update_extensions.sql"
		],
		'the script that pg_upgrade writes updates extensions');
	my $fresh = $new->safe_psql('fresh', $members);
	cmp_ok(scalar(split /\n/, $fresh), '>=', 25, 'a fresh extension has objects');
	foreach my $database ('postgres', 'former')
	{
		$new->safe_psql($database, 'ALTER EXTENSION hymt UPDATE');
		is($new->safe_psql($database, $members),
			$fresh, "$database: the objects of the extension are those of a fresh one");
		uses_work($new, $database, "$database, updated");
	}
	is($new->safe_psql('former', 'SELECT requests > 0 FROM hymt_stat'), 't', 'the new functions are there');

	$new->safe_psql('postgres', 'CREATE DATABASE restored');
	command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-d', $new->connstr('restored'), '-f', $dump ], 'it is restored');
	is($new->safe_psql('restored', $members), $fresh, 'a restored extension is a fresh one of the present version');
	uses_work($new, 'restored', 'restored');

	$new->safe_psql('former', 'DROP EXTENSION hymt CASCADE');
	is($new->safe_psql('former', 'SELECT count(*), max(title_en) FROM titles'),
		'20|zh>en: title 9', 'without the extension the rows stay');
	$new->stop;
}

scenario 'from the same version of PostgreSQL' => sub { check_upgrade('same') };

SKIP:
{
	skip 'HYMT_OLD_BINDIR names no older PostgreSQL', 1 unless $ENV{HYMT_OLD_BINDIR};
	scenario 'from an older version of PostgreSQL' => sub { check_upgrade('older', $ENV{HYMT_OLD_BINDIR}) };
}

done_testing();
