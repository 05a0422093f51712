# SPDX-License-Identifier: Apache-2.0
# The test suites of real programs, for run_suites.py: bash suites.sh prepare_NAME | run_NAME.
# PYTHON is a Python, SOURCE the unpacked source, RUN a fresh folder for one run, which is the current one.

# Runs each of some test programs, and says how it ended. RUNNER: what runs them.
each() {
    for one; do
        timeout 60 "${RUNNER[@]}" "$one" > /dev/null 2>&1 < /dev/null
        echo "test $(basename "$one"): status $?"
    done
}

run_python() {
    "$PYTHON" -m test -v -uall,-network,-gui test_dict test_list test_set test_string test_bytes test_struct \
        test_json test_re test_itertools test_threading test_thread test_subprocess test_fork1 test_mmap \
        test_ctypes test_sqlite3 test_gc test_weakref test_pickle test_zlib
}

run_perl() { # with the modules of the perl that is installed
    cp -r "$SOURCE/." . && cd t && ln -sf "$(which perl)" perl || return
    for one in $(perl -e 'print "@INC"'); do
        [ -e "$one/Config.pm" ] || [ -e "$one/CPAN.pm" ] && cp -rnL "$one/." ../lib/
    done
    ./perl TEST base/*.t cmd/*.t comp/*.t io/*.t re/*.t op/[a-h]*.t
}

prepare_sqlite() {
    ./configure -q --disable-shared --with-tcl=/usr/lib/tcl8.6 && make -s -j2 testfixture
}
run_sqlite() {
    local files
    files=$(cd "$SOURCE/test" && ls {select,index,insert,update,delete,join,where,trigger,trans,func,expr}[0-9A-Za-z]*.test \
        {vacuum,view,with,window,json,fts3,rtree,malloc5,savepoint,pager,wal,memdb,like,sort}[0-9A-Za-z]*.test)
    for one in $(head -40 <<< "$files"); do "$SOURCE/testfixture" "$SOURCE/test/$one"; done
}

run_redis() {
    cp -r "$SOURCE/tests" "$SOURCE/runtest" . && mkdir src
    for one in server cli benchmark check-aof check-rdb sentinel; do
        ln -s "$(which redis-$one || which redis-server)" src/redis-$one
    done
    ./runtest --clients 2 --baseport $((20000 + RANDOM % 8000)) $(printf -- '--single %s ' \
        unit/type/{hash,incr,set,string} \
        unit/{auth,bitops,functions,geo,keyspace,lazyfree,multi,pubsub,scan,scripting})
}

prepare_git() {
    make -s -j2 CFLAGS=-O0 NO_GETTEXT=1 NO_CURL=1 NO_EXPAT=1 NO_OPENSSL=1 NO_PERL=1 NO_TCLTK=1 NO_PYTHON=1 all
}
run_git() { # in the tree that was built: the tests ask for it
    cd "$SOURCE/t" || return
    export GIT_TEST_INSTALLED=$(dirname "$(which git)") GIT_TEST_CHAIN_LINT=0
    for one in t000[1-9]*.sh t002*.sh t300*.sh; do bash "./$one" --root="$RUN" 2>&1 | sed "s/^/$one /"; done
}

run_lua() {
    cp "$SOURCE"/{test,re}.lua . && RUNNER=(lua5.4)
    for i in $(seq 20); do cp test.lua test$i.lua && each test$i.lua; done
}

run_gcc() {
    cp -r "$SOURCE/." . && CC=gcc CFLAGS=-O2 ./configure > /dev/null && make -s -j2 test
    for one in *.o *.lo libz.a; do echo "test $one: $(cksum < "$one")"; done
}

run_clang() {
    cp -r "$SOURCE/src" . && cd src || return
    echo '#define DEB_HOST_MULTIARCH "none"' > lua5.4-deb-multiarch.h
    for one in l*.c; do
        clang -O2 -DLUA_USE_POSIX -c "$one" -o one.o
        echo "test $one: $(cksum < one.o)"
    done
}

run_gxx() {
    cp -r "$SOURCE/." . && g++ -O2 -g xmltest.cpp tinyxml2.cpp -o xmltest && ./xmltest
    echo "[exit] $(cksum < xmltest)"
}

run_node() {
    RUNNER=(node --expose-gc)
    each "$SOURCE"/test/parallel/test-{assert,buffer-[a-c],events,stream-[d-f],timers-[a-c],url}*.js \
        "$SOURCE"/test/parallel/test-{util-[a-f],zlib-[a-d],worker-[a-c]}*.js
}

run_ruby() {
    cd "$SOURCE" && ruby -I tool/lib -I test/lib test/runner.rb -v --excludes-dir=test/excludes \
        test/ruby/test_{array,string,hash,proc,thread,thread_queue,gc,fiber,marshal,enumerator,struct,range}.rb \
        test/ruby/test_{regexp,bignum,complex,exception,method,module,object,symbol,sprintf,time,pack}.rb \
        test/ruby/test_{lazy_enumerator,objectspace,weakmap}.rb
}

run_go() {
    cd "$(go env GOROOT)/src" && go test -count=1 -v -p 1 runtime/cgo os/user cmd/cgo/internal/test
}

prepare_rust() {
    cargo fetch -q
}
run_rust() {
    cp -r "$SOURCE/." . && CARGO_TARGET_DIR=$RUN/target cargo test --offline -q --lib --tests -- --format=pretty
}

prepare_postgres() {
    gcc -shared -fPIC -O1 -I"$(pg_config --includedir-server)" src/test/regress/regress.c \
        -o src/test/regress/regress.so
}
run_postgres() { # as a user of its own: the server refuses root
    local programs=$(pg_config --bindir)
    as() { setpriv --reuid=postgres --regid=postgres --clear-groups env HOME="$RUN" "$@"; }
    chmod 777 . && cp -r "$SOURCE/src/test/regress" regress && mkdir regress/results regress/testtablespace
    chown -R postgres . && as "$programs/initdb" -D data -N --no-locale -E UTF8 > initdb.log
    echo "listen_addresses = ''" >> data/postgresql.conf
    as "$programs/pg_ctl" -w -D data -o "-k $RUN -F" -l server.log start > start.log
    cd regress && as "$(dirname "$(pg_config --pgxs)")/../../src/test/regress/pg_regress" --inputdir=. --outputdir=. \
        --bindir="$programs" --dlpath="$SOURCE/src/test/regress" --host="$RUN" --max-concurrent-tests=20 \
        --schedule=parallel_schedule
    as "$programs/pg_ctl" -w -D ../data stop > /dev/null
}

run_tcl() {
    for one in "$SOURCE"/tests/[a-gi-z]*.test; do
        case $one in */all.test | */socket.test | */http* | */exec.test | */clock.test | */safe*) continue ;; esac
        timeout 120 tclsh8.6 "$one"
    done
}

prepare_bash() {
    cd tests && for one in recho zecho printenv xcase; do
        gcc -w -I.. -I../include "../support/$one.c" -o "$one"
    done
}
run_bash() { # each test by what it prints, without numbers of processes
    cp -r "$SOURCE/tests" . && cd tests || return
    export THIS_SH=$(which bash) BUILD_DIR=$SOURCE PATH=$SOURCE/tests:$PATH BASH_TSTOUT=$RUN/out
    for one in run-*; do
        case $one in run-all | run-minimal | run-gprof | run-jobs | run-read | run-trap | run-coproc) continue ;; esac
        echo "test $one: $(timeout 60 bash "$one" 2>&1 < /dev/null | sed 's/[0-9]\{3,\}/N/g' | cksum)"
    done
}

run_php() {
    cp "$SOURCE/run-tests.php" . && cp -r "$SOURCE/Zend/tests" zend
    NO_INTERACTION=1 php run-tests.php -q --offline -p "$(which php)" zend/{closures,generators,traits,list,try} \
        zend/gc_*.phpt
}

run_jq() {
    for one in jq onig base64; do jq --run-tests "$SOURCE/tests/$one.test"; done
}

run_make() {
    cp -r "$SOURCE/." . && cd tests && sed 's/@[A-Z_]*@//' config-flags.pm.in > config-flags.pm
    perl run_make_tests.pl -make "$(which make)"
}

prepare_memcached() { # what its tests start the server with
    gcc timedrun.c -o timedrun
}
run_memcached() {
    cp -r "$SOURCE/." . && sed -i /relaxed_privileges/d t/lib/MemcachedTest.pm # Debian builds it without
    ln -sf "$(which memcached)" memcached-debug && ln -sf "$(which memcached)" memcached
    for one in t/{00-startup,64bit,basic,binary-get,bogus,cas,chunked-items,expirations,flags,flush-all}*.t \
        t/{getandtouch,getset,incrdecr,is-large,issue_1,issue_22,line-lengths,lru,metaget,noreply,quit,stats,touch}*.t; do
        timeout 100 perl "$one" 2>&1 | sed -n "s|^\(not ok\) \([0-9]*\).*|test $(basename "$one")-\2: \1|p;
            s|^ok \([0-9]*\).*|test $(basename "$one")-\1: ok|p"
    done
}

run_numpy() {
    "$PYTHON" -m pytest -v -p no:cacheprovider -p no:xdist --pyargs numpy._core.tests.test_strings \
        numpy._core.tests.test_mem_overlap numpy._core.tests.test_einsum numpy._core.tests.test_indexing
}

run_zstd() {
    tar cf all.tar -C "$SOURCE" .
    for level in -1 -3 -5 -9 -13 -19 --fast=3 --long=27; do
        for threads in 1 3; do
            zstd -q -T$threads $level all.tar -o one.zst
            echo "test $level-$threads: $(cksum < one.zst) $(zstd -dc one.zst | cmp - all.tar && echo same)"
            rm one.zst
        done
    done
}

"$@" 2>&1
