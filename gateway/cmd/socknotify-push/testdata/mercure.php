<?php

// Drives a hub with symfony/mercure and symfony/http-client: php mercure.php AUTOLOAD HUB SECRET
//
// It writes a line for each part that holds. After the line "restart" it waits for a line; before
// that the hub is killed and started again. The exit status is 77 where the libraries are not
// installed.

declare(strict_types=1);

use Lcobucci\JWT\Configuration;
use Symfony\Component\HttpClient\Chunk\ServerSentEvent;
use Symfony\Component\HttpClient\CurlHttpClient;
use Symfony\Component\HttpClient\EventSourceHttpClient;
use Symfony\Component\HttpClient\NativeHttpClient;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\Mercure\Authorization;
use Symfony\Component\Mercure\Discovery;
use Symfony\Component\Mercure\Exception\RuntimeException;
use Symfony\Component\Mercure\Hub;
use Symfony\Component\Mercure\HubRegistry;
use Symfony\Component\Mercure\Jwt\FactoryTokenProvider;
use Symfony\Component\Mercure\Jwt\LcobucciFactory;
use Symfony\Component\Mercure\Jwt\StaticTokenProvider;
use Symfony\Component\Mercure\Jwt\TokenFactoryInterface;
use Symfony\Component\Mercure\Twig\MercureExtension;
use Symfony\Component\Mercure\Update;
use Symfony\Component\WebLink\HttpHeaderSerializer;
use Symfony\Contracts\HttpClient\HttpClientInterface;
use Symfony\Contracts\HttpClient\ResponseInterface;
use Twig\Extension\AbstractExtension;

const PATIENCE = 30.0; // seconds

set_error_handler(function (int $kind, string $text, string $file, int $line): bool {
    if (!(error_reporting() & $kind) || $kind & (E_DEPRECATED | E_USER_DEPRECATED)) {
        return false;
    }
    throw new ErrorException($text, 0, $kind, $file, $line);
});
ini_set('display_errors', 'stderr');
error_reporting(E_ALL & ~E_DEPRECATED & ~E_USER_DEPRECATED);

[, $autoload, $url, $secret] = $argv;
if (stream_resolve_include_path($autoload) === false) {
    fwrite(STDERR, "there is no $autoload\n");
    exit(77);
}
require $autoload;
if (stream_resolve_include_path('Twig/autoload.php') !== false) {
    require_once 'Twig/autoload.php'; // Debian's package of symfony/mercure does not need it
}
if (!class_exists(Hub::class)) {
    fwrite(STDERR, "$autoload has no symfony/mercure\n");
    exit(77);
}

function same(mixed $got, mixed $want, string $what): void
{
    if ($got !== $want) {
        $json = fn (mixed $v): string => json_encode($v, JSON_UNESCAPED_SLASHES);
        throw new LogicException("$what: got {$json($got)}, want {$json($want)}");
    }
}

// The tokens of lcobucci/jwt, whose times have fractions, or the same without it.
function factory(string $secret): TokenFactoryInterface
{
    if (class_exists(Configuration::class)) {
        return new LcobucciFactory($secret);
    }

    return new class($secret) implements TokenFactoryInterface {
        public function __construct(private string $secret)
        {
        }

        public function create(?array $read = [], ?array $write = [], array $more = []): string
        {
            $claims = $more + ['exp' => new DateTimeImmutable('+1 hour'), 'mercure' => []];
            $claims['exp'] = (float) $claims['exp']->format('U.u');
            $claims['mercure'] += ['publish' => $write, 'subscribe' => $read];
            $text = fn (string $s): string => rtrim(strtr(base64_encode($s), '+/', '-_'), '=');
            $signed = $text('{"typ":"JWT","alg":"HS256"}').'.'.$text(json_encode($claims));

            return $signed.'.'.$text(hash_hmac('sha256', $signed, $this->secret, true));
        }
    };
}

// A subscriber, of which nothing but events is wanted.
final class Reader
{
    public ResponseInterface $response;
    private EventSourceHttpClient $client;
    private ?Iterator $stream = null;

    public function __construct(
        HttpClientInterface $http, string $url, array $topics, array $options = []
    ) {
        foreach ($topics as $i => $topic) {
            $url .= ($i === 0 ? '?' : '&').'topic='.urlencode($topic);
        }
        $this->client = new EventSourceHttpClient($http, 0.2);
        $this->response = $this->client->connect($url, $options);
    }

    public function connected(): self
    {
        same($this->response->getStatusCode(), 200, 'the status of a subscriber');

        return $this;
    }

    // The next event, or null at the end of the answer.
    public function next(): ?ServerSentEvent
    {
        while (true) {
            if ($this->stream === null) {
                $this->stream = $this->client->stream($this->response, PATIENCE);
            } else {
                $this->stream->next();
            }
            if (!$this->stream->valid()) {
                return null;
            }
            $chunk = $this->stream->current();
            if ($chunk->isTimeout()) {
                throw new LogicException('timed out waiting for an event');
            }
            if ($chunk instanceof ServerSentEvent) {
                return $chunk;
            }
            if ($chunk->isLast()) {
                return null;
            }
        }
    }

    public function want(string $data, ?string $id = null, string $type = 'message'): object
    {
        $e = $this->next() ?? throw new LogicException("the answer has ended before $data");
        same([$e->getData(), $e->getType()], [$data, $type], 'an event');
        same($e->getId(), $id ?? $e->getId(), 'the id of an event');

        return $e;
    }
}

// Updates that are published come to those who want them and may have them.
function updates(HttpClientInterface $http, Hub $hub): void
{
    $url = $hub->getUrl();
    $books = ['https://example.com/books/{id}'];
    $one = 'https://example.com/users/1';
    $factory = $hub->getFactory();
    $bearer = fn (string $topic): array => ['auth_bearer' => $factory->create([$topic], [])];
    $anyone = (new Reader($http, $url, $books))->connected();
    $all = (new Reader($http, $url, $books, $bearer('*')))->connected();
    $user = (new Reader($http, $url, [$books[0], 'other'], $bearer($one)))->connected();
    $cookie = (new Authorization(new HubRegistry($hub, ['default' => $hub])))
        ->createCookie(Request::create($url), [$one]);
    same($cookie->getPath(), '/.well-known/mercure', 'the path of the cookie');
    $browser = (new Reader($http, $url, $books,
        ['headers' => ['Cookie' => $cookie->getName().'='.$cookie->getValue()]]))->connected();

    $text = "two\nlines, é, &=+%20 and \"quotes\"";
    $id = $hub->publish(new Update('https://example.com/books/1', $text));
    same($id[0], '#', 'an id of the hub');
    same($hub->publish(new Update(['https://example.com/books/2', 'other'], '{"a":1}', false,
        'urn:example:2', 'changed', 1500)), 'urn:example:2', 'the id of a publisher');
    $hub->publish(new Update('https://example.com/pages/2', 'no book'));
    $hub->publish(new Update('https://example.com/books/3', 'private', true));
    $hub->publish(new Update(['https://example.com/books/4', $one], 'mine', true));
    $hub->publish(new Update('https://example.com/books/5', 'end'));
    foreach ([$anyone, $all, $user, $browser] as $reader) {
        $reader->want($text, $id);
        $e = $reader->want('{"a":1}', 'urn:example:2', 'changed');
        same($e->getRetry(), 1.5, 'the time to come back');
        if ($reader === $all) {
            $reader->want('private');
        }
        if ($reader !== $anyone) {
            $reader->want('mine');
        }
        $reader->want('end');
        $reader->response->cancel();
    }
}

// A publisher is refused as the specification says.
function refusals(HttpClientInterface $http, Hub $hub): void
{
    $url = $hub->getUrl();
    $may = fn (string ...$topics): string => $hub->getFactory()->create([], $topics);
    $expired = $hub->getFactory()->create([], ['*'], ['exp' => new DateTimeImmutable('-1 minute')]);
    foreach ([
        [$may(), ['a'], 403],
        [$may('a', 'b{/c}'), ['a', 'b/x'], 200],
        [$may('a', 'b{/c}'), ['a', 'c'], 403],
        [$may('*'), ['/.well-known/mercure/subscriptions/a/b'], 400],
        [$may('*').'x', ['a'], 401],
        [$expired, ['a'], 401],
    ] as [$token, $topics, $want]) {
        $status = 200;
        try {
            $publisher = new Hub($url, new StaticTokenProvider($token), null, null, $http);
            $publisher->publish(new Update($topics));
        } catch (RuntimeException $e) {
            $status = $e->getPrevious()->getResponse()->getStatusCode();
        }
        same($status, $want, 'publishing to '.implode(' ', $topics));
    }
}

// The hub's link is that of symfony/mercure, relative to the hub.
function discovery(HttpClientInterface $http, Hub $hub): void
{
    $request = Request::create('https://example.com/books/1');
    (new Discovery(new HubRegistry($hub, ['default' => $hub])))->addLink($request);
    $links = $request->attributes->get('_links')->getLinks();
    $link = (new HttpHeaderSerializer())->serialize($links);
    $r = (new Reader($http, $hub->getUrl(), ['a']))->connected();
    $origin = substr($hub->getUrl(), 0, strpos($hub->getUrl(), '/.well-known'));
    same(str_replace('</', "<$origin/", $r->response->getHeaders()['link'][0]), $link, 'the link');
    $r->response->cancel();
}

// A subscriber that comes back gets what it has missed, and so does a page of symfony/mercure.
function history(HttpClientInterface $http, Hub $hub): void
{
    $pages = null;
    if (class_exists(AbstractExtension::class)) {
        $pages = new MercureExtension(new HubRegistry($hub, ['default' => $hub]));
    }
    $all = ['1', '2', '3'];
    foreach (['first' => ['2', '3'], 'second' => ['3'], 'third' => [], 'earliest' => $all,
        'unknown' => $all] as $case => $want) {
        $topic = 'https://example.com/history/'.bin2hex(random_bytes(8));
        $ids = ['first' => $hub->publish(new Update($topic, '1')),
            'second' => $hub->publish(new Update($topic, '2', false, $topic.'#2')),
            'third' => $hub->publish(new Update($topic, '3'))];
        $last = $ids[$case] ?? $case;
        $readers = [new Reader($http, $hub->getUrl(), [$topic],
            ['headers' => ['Last-Event-ID' => $last]])];
        if ($pages !== null) {
            $readers[] = new Reader($http, $pages->mercure($topic, ['lastEventId' => $last]), []);
        }
        foreach ($readers as $r) {
            $answered = $r->connected()->response->getHeaders()['last-event-id'][0];
            same($answered, $ids[$case] ?? 'earliest', "the answer to $last");
        }
        $hub->publish(new Update($topic, 'live'));
        foreach ($readers as $r) {
            foreach ([...$want, 'live'] as $data) {
                $r->want($data);
            }
            $r->response->cancel();
        }
    }
}

// The documents of the subscriptions, and their updates.
function subscriptions(HttpClientInterface $http, Hub $hub): void
{
    $factory = $hub->getFactory();
    $path = '/.well-known/mercure/subscriptions';
    $may = ['auth_bearer' => $factory->create([$path.'{/topic}{/subscriber}'], [])];
    $topic = 'https://example.com/'.bin2hex(random_bytes(8)).'/{id}';
    $own = $path.'/'.rawurlencode($topic);
    $watcher = (new Reader($http, $hub->getUrl(), [$own.'{/subscriber}'], $may))->connected();
    $payload = ['name' => 'Alice', 'groups' => [1, 2]];
    $token = $factory->create([], [], ['mercure' => ['payload' => $payload]]);
    $r = (new Reader($http, $hub->getUrl(), [$topic], ['auth_bearer' => $token]))->connected();
    $begun = json_decode($watcher->next()->getData(), true);
    same(array_keys($begun), ['@context', 'id', 'type', 'topic', 'subscriber', 'active', 'payload'],
        'the properties of an update');
    same($begun['@context'], 'https://mercure.rocks/', 'the context');
    same($begun['id'], $own.'/'.rawurlencode($begun['subscriber']), 'the id of an update');
    same([$begun['type'], $begun['topic'], $begun['active'], $begun['payload']],
        ['Subscription', $topic, true, $payload], 'an update');

    $ask = fn (string $path, array $options): ResponseInterface => $http->request('GET',
        str_replace('/.well-known/mercure', $path, $hub->getUrl()), $options);
    $get = function (string $path) use ($ask, $may): array {
        $answer = $ask($path, $may);
        same($answer->getHeaders()['content-type'], ['application/ld+json'], $path);
        $document = $answer->toArray();
        same($document['@context'], 'https://mercure.rocks/', $path);
        same($document['lastEventID'][0], '#', $path);

        return $document;
    };
    $one = array_diff_key($begun, ['@context' => 0]);
    foreach ([$path, $own] as $collection) {
        $document = $get($collection);
        same([$document['id'], $document['type']], [$collection, 'Subscriptions'], 'a collection');
        $found = array_filter($document['subscriptions'],
            fn (array $d): bool => $d['topic'] === $topic);
        same(array_values($found), [$one], 'the subscriptions of a collection');
    }
    same(array_diff_key($get($begun['id']), ['lastEventID' => 0]), $begun, 'one subscription');
    same($ask($own.'/urn%3Anone', $may)->getStatusCode(), 404, 'the status of none');
    same($ask($path, [])->getStatusCode(), 401, 'the status without a token');
    $other = ['auth_bearer' => $factory->create(['https://example.com/{id}'], [])];
    same($ask($path, $other)->getStatusCode(), 403, 'the status with another token');

    $r->response->cancel();
    unset($r);
    $ended = json_decode($watcher->next()->getData(), true);
    same($ended, array_replace($begun, ['active' => false]), 'the update of the end');
    $watcher->response->cancel();
}

// The hub is killed. symfony/http-client takes the end of the answer as the end of the events, so
// the program connects again. The client tries until the hub is there.
function restart(HttpClientInterface $http, Hub $hub): void
{
    $topic = 'https://example.com/restart/'.bin2hex(random_bytes(8));
    $may = ['auth_bearer' => $hub->getFactory()->create(['*'], [])];
    $r = (new Reader($http, $hub->getUrl(), [$topic], $may))->connected();
    $hub->publish(new Update($topic, 'before', true));
    $last = $r->want('before')->getId();
    same($r->response->getInfo('last_event_id'), $last, 'the last id');
    echo "restart\n";
    same($r->next(), null, 'the event of a hub that was killed');
    $r = new Reader($http, $hub->getUrl(), [$topic],
        $may + ['headers' => ['Last-Event-ID' => $last]]);
    fgets(STDIN);
    $hub->publish(new Update($topic, 'after', true));
    $r->want('after');
    same($r->response->getHeaders()['last-event-id'][0], $last, 'the answer after the restart');
    $r->response->cancel();
}

$clients = ['streams' => new NativeHttpClient()];
if (extension_loaded('curl')) {
    $clients['curl'] = new CurlHttpClient();
}
foreach ($clients as $name => $http) {
    $factory = factory($secret);
    $hub = new Hub($url, new FactoryTokenProvider($factory, [], ['*']), $factory, null, $http);
    foreach (['updates', 'refusals', 'discovery', 'history', 'subscriptions', 'restart'] as $part) {
        try {
            $part($http, $hub);
        } catch (Throwable $e) {
            fwrite(STDERR, "$part, by $name: $e\n");
            exit(1);
        }
        echo "$part, by $name, with ", get_debug_type($factory), ": ok\n";
    }
}
