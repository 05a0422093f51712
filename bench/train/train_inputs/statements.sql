SELECT * FROM rich WHERE s > $age ORDER BY s DESC LIMIT 20;
SELECT name, rank() OVER (PARTITION BY age/10 ORDER BY length(notes)) FROM person LIMIT $age;
WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM c WHERE n < 10 + $age) SELECT sum(n) FROM c;
UPDATE person SET notes = notes || '$few' WHERE age = $age;
DELETE FROM person WHERE id = $number;
SELECT json_extract('{"a":[1,2,{"b":$age}]}', '$$.a[2].b'), json_group_array(name) FROM person WHERE age = $age;
INSERT INTO texts VALUES('$many');
SELECT rowid, snippet(texts, 0, '[', ']', '', 5) FROM texts WHERE texts MATCH '$word NOT old';
INSERT INTO places VALUES($i, $age, $age + 3, $number, $number + 5);
SELECT count(*) FROM places WHERE x0 > $age AND y1 < $number;
BEGIN; UPDATE orders SET amount = amount * 1.01 WHERE id % 7 = 0; ROLLBACK;
SELECT DISTINCT substr(notes, 1, 5), group_concat(name) FROM person WHERE id IN (SELECT person FROM orders WHERE amount > $age) GROUP BY 1 HAVING count(*) > 1;
CREATE TABLE IF NOT EXISTS extra$few_numbers(a, b, c UNIQUE, CHECK(a > 0));
DROP TABLE IF EXISTS extra$few_numbers;
SELECT printf('%08.3f %s', $amount, upper(hex(randomblob(16)))), strftime('%Y-%j', 'now');
ALTER TABLE person RENAME TO people$i; ALTER TABLE people$i RENAME TO person;
PRAGMA integrity_check;
CREATE TEMP TABLE t$i AS SELECT * FROM orders WHERE amount > $age; DROP TABLE t$i;
@1
@2
@$place SELECT max(amount), '$few' FROM orders WHERE id > ?1 OR person BETWEEN $age AND $number;
SELECT a.name FROM person a LEFT JOIN person b ON a.age = b.age AND a.id < b.id WHERE b.id IS NULL AND a.notes LIKE '%$word%' LIMIT 5;
EXPLAIN QUERY PLAN SELECT * FROM rich, person WHERE rich.name = person.name;
SELECT * FROM (SELECT age, count(*) n FROM person GROUP BY age UNION SELECT id, amount FROM orders) WHERE n > 1 ORDER BY n, age LIMIT $age;
