-- Which start of a node's process is connected, and since when: a name is one process, whichever server it is connected to.
ALTER TABLE nodes ADD COLUMN instance TEXT NOT NULL DEFAULT '';
ALTER TABLE nodes ADD COLUMN since INTEGER NOT NULL DEFAULT 0; -- Unix seconds; 0: not known
