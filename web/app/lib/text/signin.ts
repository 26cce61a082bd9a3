/** Signing in. */

export const signIn = {
  title: 'Sign in',
  name: 'Name',
  password: 'Password',
  show: 'Show',
  hide: 'Hide',
  showPassword: 'Show the password',
  submit: 'Sign in',
  with: (provider: string) => `Sign in with ${provider}`,
  withInTab: (provider: string) => `Sign in with ${provider} in a new tab`,
  noAdmin:
    'No administrator exists yet. Open the sign-in link that the server printed when it started; a restart prints a new one.',
  lostTitle: 'Sign in again',
  lost: 'Your session has ended. The page and everything typed stay as they are.',
  taken: (now: string, before: string) =>
    `${now} is signed in in this browser now. What is typed here is ${before}'s: sign in as ${before} to go on with it.`,
  wrong: (left: number) =>
    left === 0
      ? 'Wrong name or password. No try is left before a wait.'
      : `Wrong name or password. ${left} ${left === 1 ? 'try' : 'tries'} left before a wait.`,
  code: 'Code',
  codeHelp: 'The one that your authenticator app shows now, or a recovery code.',
  wrongCode: (left: number) =>
    left === 0
      ? 'Wrong code, or one that was used before. None may be tried before a wait.'
      : `Wrong code, or one that was used before. ${left} more may be tried before a wait.`,
  tooMany: 'Too many tries.',
  wait: (seconds: number) => `Try again in ${seconds} s.`,
  other: 'Sign in as someone else',
  goOnAs: (name: string) => `Go on as ${name}`,
  doneTitle: 'Signed in',
  done: (name: string) =>
    `You are signed in as ${name}. Close this tab, and go on in the one that you came from.`,
  toDashboard: 'Open the dashboard here',
};
