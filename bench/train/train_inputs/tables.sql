CREATE TABLE person(id INTEGER PRIMARY KEY, name TEXT, age INT, notes TEXT);
CREATE TABLE orders(id INTEGER PRIMARY KEY, person INT REFERENCES person(id), amount REAL, at TEXT);
CREATE INDEX by_age ON person(age); CREATE INDEX by_person ON orders(person, amount);
CREATE VIEW rich AS SELECT p.name, sum(o.amount) s FROM person p JOIN orders o ON o.person=p.id GROUP BY p.id;
CREATE TRIGGER t AFTER DELETE ON person BEGIN DELETE FROM orders WHERE person = old.id; END;
CREATE VIRTUAL TABLE texts USING fts5(body);
CREATE VIRTUAL TABLE places USING rtree(id, x0, x1, y0, y1);
@1 SELECT count(*) FROM orders WHERE person = abs(random()) % 500;
@2 SELECT p.age, avg(o.amount) FROM person p JOIN orders o ON o.person = p.id GROUP BY p.age ORDER BY 2;
