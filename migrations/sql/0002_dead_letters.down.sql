drop table dead_letters;
