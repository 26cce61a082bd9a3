-- Charges records that nodes of Tidegate share; contains no algorithm. A record is HEAD|LEASES|SECONDS|NANOSECONDS|VERSION (an
-- instant) or HEAD|LEASES|COUNT|0|VERSION; LEASES is EPOCH,NOW,BEFORE (lent tokens) or empty. Each argument is one operation, in
-- MessagePack, which Redis decodes in a quarter of the time that as many arguments would take:
--   whether it is the last of its request, its name, the place of its key, whether its limit is in shadow mode
--   a look and a clear have nothing more; others have the times from and until which they are right (microseconds), the seconds
--   that the record lives without and with leases, the place of the key of the last number that this node sent (0: none), and
--   the number of this operation, which rises: one that was made is not made again
--   a swap has the value after it, and the value before it
--   an add, a take and a lend have: whether the tail is an instant, the head, what is added (for a take below 0; it ends at the
--   floor) and the most above the floor (seconds and nanoseconds, or a count and 0), the version of the policy; an add then has
--   the leases that it is right for; a lend the epoch, how many more tokens of it and of the one before are lent, and the most
--   that may be lent in all
-- A request is charged whole or not at all. Returns the time in microseconds, and for each operation its outcome and the value
-- then.
local match, format, call = string.match, string.format, redis.call
local time = call('TIME')
local now_s, now_n = tonumber(time[1]), tonumber(time[2]) * 1000
local now = now_s * 1000000 + tonumber(time[2])
local values, lives, told, last = {}, {}, { format('%d', now) }, 1
-- The operations of the current request, and whether all of them are made so far. The tables are reused.
local charges, size, is_charged = {}, 0, true

local function value(key)
  local known = values[key]
  if not known then
    known = call('GET', KEYS[key]) or ''
    values[key] = known
  end
  return known
end

-- Returns the leases after a lend; nil: the lend does not fit them.
local function lend(leases, epoch, more, more_before, most_out)
  local found, lent, before = match(leases, '^(%d+),(%d+),(%d+)$')
  if found and tonumber(found) ~= epoch then return nil end
  lent, before = (tonumber(lent) or 0) + more, (tonumber(before) or 0) + more_before
  if lent < 0 or before < 0 or lent + before > most_out then return nil end
  if lent + before == 0 then return '' end
  return format('%d,%d,%d', epoch, lent, before)
end

-- Returns the later of two instants, or the larger count.
local function later(s, n, floor_s, floor_n)
  if s < floor_s or (s == floor_s and n < floor_n) then return floor_s, floor_n end
  return s, n
end

local function add(what, found, is_instant, head, add_s, add_n, most_s, most_n, version, ...)
  local leases, s, n, floor_s, floor_n = '', 0, 0, 0, 0
  if found == '' and what == 'take' then return 'other' end
  if found ~= '' then
    local found_head, out, found_s, found_n, found_version = match(found, '^([^|]*)|([%d,]*)|(%d+)|(%d+)|(%d+)$')
    if found_head ~= head then return 'other' end
    leases, s, n, version = out, tonumber(found_s), tonumber(found_n), math.max(version, tonumber(found_version))
  end
  if what == 'lend' then
    leases = lend(leases, ...)
    if not leases then return 'other' end
  elseif what == 'add' and leases ~= ... then
    return 'other'
  end
  if is_instant then floor_s, floor_n = now_s, now_n end
  s, n = later(s, n, floor_s, floor_n)
  s, n = s + add_s, n + add_n
  if n >= 1000000000 then s, n = s + 1, n - 1000000000 elseif n < 0 then s, n = s - 1, n + 1000000000 end
  if what == 'take' then s, n = later(s, n, floor_s, floor_n) end
  local over_s, over_n = s - floor_s, n - floor_n
  if over_n < 0 then over_s, over_n = over_s - 1, over_n + 1000000000 end
  if over_s > most_s or (over_s == most_s and over_n > most_n) then
    return what == 'lend' and 'other' or 'refused'
  end
  return 'charged', format('%s|%s|%d|%d|%d', head, leases, s, n, version), is_instant and s - now_s + 2 or 0
end

-- Returns the outcome of an operation, the value after it, and the least seconds that it must live, where only the value shows them.
-- The outcome is `other` where the operation does not fit, or is not for this value.
local function step(found, what, from, till, sent, number, ...)
  if what == 'look' then return 'looked' end
  if what == 'clear' then return 'charged', '' end
  if sent > 0 and (tonumber(value(sent)) or 0) >= number then return 'known' end
  if now < from or now >= till then return 'other' end
  if what == 'swap' then
    local after, before = ...
    if found ~= before then return 'other' end
    return 'charged', after
  end
  return add(what, found, ...)
end

local function finish()
  for place = 1, size do
    local c = charges[place]
    if c.outcome == 'charged' and is_charged then
      values[c.key] = c.after
      lives[c.key] = math.max(match(c.after, '^[^|]*|%d') and c.leased or c.life or 1, c.lasts or 0)
      if c.sent and c.sent > 0 then
        values[c.sent], lives[c.sent] = format('%d', c.number), math.max(c.life, 60)
      end
    elseif c.outcome == 'charged' then
      c.outcome = 'spared'
    end
    told[last + 1], told[last + 2] = c.outcome, c.outcome == 'unasked' and '' or value(c.key)
    last = last + 2
  end
  size, is_charged = 0, true
end

local function charge(is_last, what, key, is_shadow, from, till, life, leased, sent, number, ...)
  size = size + 1
  local c = charges[size] or {}
  charges[size] = c
  c.key, c.life, c.leased, c.sent, c.number = key, life, leased, sent, number
  c.outcome = 'unasked'
  if is_charged then
    c.outcome, c.after, c.lasts = step(value(key), what, from, till, sent, number, ...)
    is_charged = c.outcome ~= 'other' and (c.outcome ~= 'refused' or is_shadow)
  end
  if is_last then finish() end
end

for place = 1, #ARGV do
  charge(cmsgpack.unpack(ARGV[place]))
end
-- Nothing was written so far: if the server refuses the first of these, nothing is.
for key, life in pairs(lives) do
  call('SET', KEYS[key], values[key], 'EX', life)
end
return told
