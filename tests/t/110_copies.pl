# A server with hymt is backed up, and published to another that has hymt too.
use strict;
use warnings;

use HymtTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);

my $publisher = hymt_node('publisher', init => [ allows_streaming => 'logical' ]);
my $tables = <<'END';
CREATE TABLE titles (id int PRIMARY KEY, title text, title_en text);
CREATE TRIGGER translate_title BEFORE INSERT OR UPDATE ON titles FOR EACH ROW
  EXECUTE FUNCTION hymt_translate_trigger('title', 'title_en', 'zh', 'en');
END
$publisher->safe_psql('postgres', $tables);
$publisher->safe_psql('postgres', "INSERT INTO titles SELECT i, 'title ' || i FROM generate_series(1, 20) AS i");

my $subscriber;
scenario 'a backup' => sub {
	my $session = background($publisher, translate('mock:sleep 30'));

	wait_for_slots($publisher, 1);
	my $since = time;
	$publisher->backup('copy');
	cmp_ok(time - $since, '<', 25, sprintf('pg_basebackup while a session waits: %.1f s', time - $since));
	$publisher->safe_psql('postgres', 'SELECT pg_terminate_backend(' . session_pid($publisher, $session) . ')');
	finish($session);

	$subscriber = PostgreSQL::Test::Cluster->new('subscriber');
	$subscriber->init_from_backup($publisher, 'copy');
	$subscriber->start;
	watch($subscriber);
	is($subscriber->safe_psql('postgres', translate('from a backup')), 'zh>en: from a backup', 'the copy translates');
	is($subscriber->safe_psql('postgres', 'SELECT count(title_en) FROM titles'), '20', 'and has its rows');
};

scenario 'a publication for all tables' => sub {
	my $connection = $publisher->connstr . ' dbname=postgres';

	$publisher->safe_psql('postgres', 'CREATE PUBLICATION everything FOR ALL TABLES');
	$subscriber->safe_psql('postgres', 'TRUNCATE titles');
	$subscriber->safe_psql('postgres', "CREATE SUBSCRIPTION everything CONNECTION '$connection' PUBLICATION everything");
	$subscriber->wait_for_subscription_sync($publisher, 'everything') if $subscriber->can('wait_for_subscription_sync');
	wait_until($subscriber, 'SELECT count(*) FROM titles', '20');

	my $before = status($subscriber, 'requests');
	$publisher->safe_psql('postgres',
		"INSERT INTO titles VALUES (21, 'published'); UPDATE titles SET title = 'new' WHERE id = 1");
	ok(wait_until($subscriber, 'SELECT string_agg(title_en, $$, $$ ORDER BY id) FROM titles WHERE id IN (1, 21)',
			'zh>en: new, zh>en: published'), 'translations arrive');
	is(status($subscriber, 'requests'), $before, 'without being made anew');

	# A trigger that fires for replicated rows, too, translates in the process that applies them.
	$subscriber->safe_psql('postgres', 'ALTER TABLE titles ENABLE ALWAYS TRIGGER translate_title');
	$publisher->safe_psql('postgres', <<'END');
ALTER TABLE titles DISABLE TRIGGER translate_title;
INSERT INTO titles VALUES (22, 'applied');
END
	ok(wait_until($subscriber, 'SELECT title_en FROM titles WHERE id = 22', 'zh>en: applied'),
		'a trigger of the subscriber translates');
	$publisher->safe_psql('postgres', "INSERT INTO titles VALUES (23, 'mock:sleep 30')");
	wait_for_slots($subscriber, 1);
	my $since = time;
	$subscriber->safe_psql('postgres', 'DROP SUBSCRIPTION everything');
	cmp_ok(time - $since, '<', PROMPT_SECONDS,
		sprintf('the subscription can be dropped while it waits: after %.0f ms', (time - $since) * 1000));
};

$subscriber->stop;
$publisher->stop;
done_testing();
