-- Reservations whose start waits for a node are tried in turns (`find_late_starts`).
create index reservations_late on reservations (position) where state = 'confirmed' and waits_for = 'node';
