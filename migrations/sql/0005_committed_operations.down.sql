drop function tell_committed(uuid, text, integer, text, text);
