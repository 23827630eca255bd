// libuv: libuv echo THREADS
//        libuv core REGISTERED ACTIVE MILLISECONDS
#include "tokens.h"
#include <uv.h>

static void check(int err, const char *what) {
	if (err < 0) {
		fprintf(stderr, "%s: %s\n", what, uv_strerror(err));
		exit(1);
	}
}

static void freed(uv_handle_t *h) { free(h); }

static void room(uv_handle_t *h, size_t want, uv_buf_t *b) {
	static __thread char buf[65536];
	(void)h, (void)want;
	*b = uv_buf_init(buf, sizeof buf);
}

// A write that could not be done at once, and its bytes.
struct rest {
	uv_write_t req;
	char bytes[];
};

static void written(uv_write_t *req, int status) {
	(void)status;
	free(req);
}

static void echo(uv_stream_t *s, ssize_t n, const uv_buf_t *b) {
	if (n < 0) {
		uv_close((uv_handle_t *)s, freed);
		return;
	}
	if (n == 0) return;
	uv_buf_t all = uv_buf_init(b->base, n);
	int sent = uv_try_write(s, &all, 1);
	if (sent == n) return;
	if (sent < 0) sent = 0;
	struct rest *r = malloc(sizeof *r + n - sent);
	memcpy(r->bytes, b->base + sent, n - sent);
	uv_buf_t left = uv_buf_init(r->bytes, n - sent);
	if (uv_write(&r->req, s, &left, 1, written)) {
		free(r);
		uv_close((uv_handle_t *)s, freed);
	}
}

static void incoming(uv_stream_t *l, int status) {
	uv_tcp_t *c = malloc(sizeof *c);
	check(status, "listen");
	check(uv_tcp_init(l->loop, c), "uv_tcp_init");
	if (uv_accept(l, (uv_stream_t *)c) < 0) {
		uv_close((uv_handle_t *)c, freed);
		return;
	}
	uv_tcp_nodelay(c, 1);
	check(uv_read_start((uv_stream_t *)c, room, echo), "uv_read_start");
}

static void serve(void *arg) {
	uv_loop_t loop;
	uv_tcp_t l;
	check(uv_loop_init(&loop), "uv_loop_init");
	check(uv_tcp_init(&loop, &l), "uv_tcp_init");
	check(uv_tcp_open(&l, (int)(long)arg), "uv_tcp_open");
	check(uv_listen((uv_stream_t *)&l, 4096, incoming), "uv_listen");
	uv_run(&loop, UV_RUN_DEFAULT);
}

static int run_echo(int threads) {
	int port = 0, l[64] = {0};
	for (int i = 0; i < threads; i++) {
		l[i] = bound(SOCK_STREAM, port, threads > 1);
		port = port_of(l[0]);
	}
	for (int i = 1; i < threads; i++) {
		uv_thread_t t;
		check(uv_thread_create(&t, serve, (void *)(long)l[i]), "uv_thread_create");
	}
	say_ready(port);
	serve((void *)(long)l[0]);
	return 0;
}

static struct tokens tokens;
static uint64_t until, ops;

static void hand_on(uv_poll_t *p, int status, int events) {
	int k = (int)(long)p->data;
	(void)status, (void)events;
	if (!pass(&tokens, k)) return;
	if (++ops % 512 == 0 && now_ns() >= until) uv_stop(p->loop);
}

static void watch(uv_poll_t *p, int fd, long mine) {
	check(uv_poll_init(uv_default_loop(), p, fd), "uv_poll_init");
	p->data = (void *)mine;
	check(uv_poll_start(p, UV_READABLE, hand_on), "uv_poll_start");
}

static int run_core(int registered, int active, long ms) {
	struct outcome o = {0};
	uv_poll_t *polls = calloc(registered, sizeof *polls);
	make_tokens(&tokens, registered, active);
	o.base = base_ns(&tokens, 1, active);
	for (long i = 0, k = 0; i < registered; i++) {
		long mine = k < active && active_at(&tokens, k) == i ? k++ : active;
		watch(&polls[i], tokens.out[i], mine);
	}
	uv_run(uv_default_loop(), UV_RUN_NOWAIT); // libuv registers at the next turn
	begin(&tokens);
	start(&o);
	until = now_ns() + ms * 1000000ull;
	uv_run(uv_default_loop(), UV_RUN_DEFAULT);
	stop(&o);
	o.ops = ops;
	tell(&o);
	return 0;
}

int main(int argc, char **argv) {
	if (argc == 3 && !strcmp(argv[1], "echo") && atoi(argv[2]) <= 64) return run_echo(atoi(argv[2]));
	if (argc == 5 && !strcmp(argv[1], "core")) return run_core(atoi(argv[2]), atoi(argv[3]), atol(argv[4]));
	return 2;
}
